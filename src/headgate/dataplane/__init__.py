"""Deciding: the limiter, the rules it goes by, and what wraps its store."""
