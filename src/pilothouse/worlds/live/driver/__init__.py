"""The driver: the state of a live run and the functions that change it. No I/O."""
