"""Counters in this process's memory."""

from headgate.adapters.memory.store import MemoryStore
from headgate.adapters.memory.table import WhenFull

__all__ = ["MemoryStore", "WhenFull"]
