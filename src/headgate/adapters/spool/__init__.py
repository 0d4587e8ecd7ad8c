"""The spool: a log on disk for each process that decides, which every sink reads at a pace of its own."""

from headgate.adapters.spool.folder import forgotten_spools, shipping_lock, warn_of_forgotten
from headgate.adapters.spool.stream import COUNTS, EVENTS, SpooledStream, spooled_counts, spooled_events
from headgate.adapters.spool.writer import Writer

__all__ = [
    "COUNTS",
    "EVENTS",
    "SpooledStream",
    "Writer",
    "forgotten_spools",
    "shipping_lock",
    "spooled_counts",
    "spooled_events",
    "warn_of_forgotten",
]
