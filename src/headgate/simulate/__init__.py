"""Simulation: replays past traffic against draft rules with the real limiter, on virtual time."""
