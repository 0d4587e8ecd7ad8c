"""Counters in this process's memory, and the feed of changes for one process."""

from headgate.adapters.memory.feed import MemoryCache, MemoryFeed
from headgate.adapters.memory.store import MemoryStore
from headgate.adapters.memory.table import DEFAULT_MAX_COUNTERS, WhenFull

__all__ = ["DEFAULT_MAX_COUNTERS", "MemoryCache", "MemoryFeed", "MemoryStore", "WhenFull"]
