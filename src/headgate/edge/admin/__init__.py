"""The admin API: HTTP in front of the control plane, described by itself as OpenAPI."""
