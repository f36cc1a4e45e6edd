"""Driver, contexts and engines on virtual time, under seeded storms of faults."""
