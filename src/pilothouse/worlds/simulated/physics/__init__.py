"""What a simulated cluster is made of: platform, profiles, sharing, machines, energy, probes."""
