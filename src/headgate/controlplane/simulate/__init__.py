"""Trying rules on traffic that has been: the same limiter, on virtual time."""
