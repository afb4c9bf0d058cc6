"""A world from a seed: real services, simulated machines, virtual time, and everything fails."""
