"""Protocol engines: bytes in, events out. They do no I/O and know nothing of rate limiting."""
