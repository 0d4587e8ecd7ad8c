"""HTTP/2 (RFC 9113) and HPACK (RFC 7541), as much as a gRPC server for calls of one message needs."""
