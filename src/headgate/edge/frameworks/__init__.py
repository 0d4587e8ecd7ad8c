"""Headgate inside web frameworks: who calls what, and what they are told. The limiter decides."""
