"""Services for the tasks of a run: the key-value service."""
