"""From untrusted data to checked rules."""
