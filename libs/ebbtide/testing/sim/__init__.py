"""A world from a seed: the real services, simulated machines, virtual time, and everything fails."""
