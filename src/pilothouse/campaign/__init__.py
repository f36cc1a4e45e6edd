"""Many simulations: forecasts and what-ifs."""
