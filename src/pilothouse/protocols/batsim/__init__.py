"""The Batsim protocol, generations 2 to 4: JSON messages over ZeroMQ, job data optionally through Redis."""
