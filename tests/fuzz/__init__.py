"""Fuzzing of every parser, codec and socket: `./do fuzz`, and a short part of it in the tests."""
