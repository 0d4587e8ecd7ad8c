"""Counters in a Valkey server of our own: a child process that keeps them in a folder."""

from headgate.adapters.embedded.folder import named_folder
from headgate.adapters.embedded.server import EmbeddedServer
from headgate.adapters.embedded.store import EmbeddedStore

__all__ = ["EmbeddedServer", "EmbeddedStore", "named_folder"]
