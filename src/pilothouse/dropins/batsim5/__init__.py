"""The drop-in for Batsim 5."""
