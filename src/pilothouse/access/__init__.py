"""Who may connect to a run, and who may read its files. Worlds and protocols use it; it knows neither."""
