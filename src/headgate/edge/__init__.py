"""Translating in and out; never deciding."""
