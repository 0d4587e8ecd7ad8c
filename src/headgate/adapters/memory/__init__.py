"""Counters in this process's memory."""

from headgate.adapters.memory.store import MemoryStore
from headgate.adapters.memory.table import DEFAULT_MAX_COUNTERS, WhenFull

__all__ = ["DEFAULT_MAX_COUNTERS", "MemoryStore", "WhenFull"]
