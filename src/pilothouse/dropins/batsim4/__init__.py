"""The drop-in for Batsim 4."""
