"""Pilothouse: write a scheduler once, and steer with it a simulated cluster, your own allocation, or a resource manager."""

__version__ = "0.1.0"
