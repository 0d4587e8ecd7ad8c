"""An Envoy of our own in front of an application."""
