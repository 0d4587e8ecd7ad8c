"""Backups: everything in the database, and on request the counters, as files in a place."""

from headgate.adapters.backup.checking import find, found, verify
from headgate.adapters.backup.making import make
from headgate.adapters.backup.manifest import Manifest
from headgate.adapters.backup.restoring import Outcome, check_version, in_use, restore, restore_counters

__all__ = [
    "Manifest",
    "Outcome",
    "check_version",
    "find",
    "found",
    "in_use",
    "make",
    "restore",
    "restore_counters",
    "verify",
]
