"""A gRPC server for Envoy, on HTTP/2 of our own; docs/decisions/0015 says why."""
