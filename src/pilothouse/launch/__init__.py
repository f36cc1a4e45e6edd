"""From names and options to a run: deciders by name, run folders, supervised schedulers, output files."""
