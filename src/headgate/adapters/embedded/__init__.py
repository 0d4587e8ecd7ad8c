"""Servers of our own, as child processes that keep their data in a folder: Valkey and PostgreSQL."""

from headgate.adapters.embedded.database import OpenedDatabase, open_database
from headgate.adapters.embedded.keeper import embedded_servers, keep_running
from headgate.adapters.embedded.postgres import EmbeddedPostgres
from headgate.adapters.embedded.server import EmbeddedServer, ServerStarter, named_folder
from headgate.adapters.embedded.valkey import VALKEY, EmbeddedStore

__all__ = [
    "VALKEY",
    "EmbeddedPostgres",
    "EmbeddedServer",
    "EmbeddedStore",
    "OpenedDatabase",
    "ServerStarter",
    "embedded_servers",
    "keep_running",
    "named_folder",
    "open_database",
]
