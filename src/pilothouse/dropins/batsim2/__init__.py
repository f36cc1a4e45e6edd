"""The drop-in for Batsim 2."""
