"""Messages between driver and engines, their sequence numbers, and the sockets that carry them."""
