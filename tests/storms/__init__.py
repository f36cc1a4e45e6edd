"""Storms with real processes (tests/simtest has those on virtual time)."""
