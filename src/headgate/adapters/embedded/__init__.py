"""Servers of our own, as child processes that keep their data in a folder: Valkey and PostgreSQL."""

from headgate.adapters.embedded.database import OpenedDatabase, open_database
from headgate.adapters.embedded.folder import named_folder
from headgate.adapters.embedded.postgres import EmbeddedPostgres
from headgate.adapters.embedded.server import EmbeddedServer
from headgate.adapters.embedded.starting import Starting
from headgate.adapters.embedded.store import EmbeddedStore
from headgate.adapters.embedded.valkey import VALKEY

__all__ = [
    "VALKEY",
    "EmbeddedPostgres",
    "EmbeddedServer",
    "EmbeddedStore",
    "OpenedDatabase",
    "Starting",
    "named_folder",
    "open_database",
]
