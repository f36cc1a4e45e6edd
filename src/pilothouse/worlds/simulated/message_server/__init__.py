"""Batsim's server: each message costs simulated time. One server, with rules for generations 4 and 5."""
