"""The engine: one per node, starts tasks and reports how they ended."""
