"""HTTP/1.1 (RFC 9112), the side of the server."""
