"""What driver and engines say to each other, and how: messages, sequence numbers, sockets."""
