"""Envoy's rate-limit service (`envoy.service.ratelimit.v3`), whatever the messages come in."""
