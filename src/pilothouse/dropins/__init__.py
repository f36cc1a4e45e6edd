"""Programs that replace another program: its options, its files, its exit codes."""
