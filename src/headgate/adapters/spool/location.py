"""Which spool is ours: services that share a data directory must not export what belongs to another's database.

A spool is named after its first sink: the database, or else Kafka, or else the file. The other sinks can be added
and removed, and the spool keeps its name and what waits in it.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from pathlib import Path

    from headgate.settings import Settings

SPOOLS: Final = "spool"
_DIGITS: Final = 12
_ADDRESS_PARAMETERS: Final = frozenset({"host", "port", "dbname", "database"})


def spool_folder(settings: Settings) -> Path | None:
    """The folder of these settings' spool; None if they name no sink."""
    if settings.database_url is not None:
        kind, address = "database", _database(settings.database_url)
    elif settings.kafka_brokers is not None:
        kind, address = "kafka", f"{settings.kafka_brokers.partition('?')[0].strip()}/{settings.kafka_topic}"
    elif settings.events_file is not None:
        kind, address = "file", str(settings.events_file.absolute())
    else:
        return None
    return settings.data_dir / SPOOLS / f"{kind}-{sha256(address.encode()).hexdigest()[:_DIGITS]}"


def _database(url: str) -> str:
    """The address of a database, the same for every user and password."""
    address = urlsplit(url)
    scheme = "" if address.scheme.startswith("postgres") else address.scheme
    parameters = sorted(pair for pair in parse_qsl(address.query) if pair[0] in _ADDRESS_PARAMETERS)
    return f"{scheme}://{address.netloc.rpartition('@')[2]}{address.path}?{parameters}"
