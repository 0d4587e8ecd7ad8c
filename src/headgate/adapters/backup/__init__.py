"""Backups: everything in the database, and on request the counters, as files in a place."""

from headgate.adapters.backup.checking import LATEST, find, found, verify
from headgate.adapters.backup.making import make
from headgate.adapters.backup.manifest import Manifest
from headgate.adapters.backup.restoring import Outcome, check_version, in_use, origin_of, restore, restore_counters

__all__ = [
    "LATEST",
    "Manifest",
    "Outcome",
    "check_version",
    "find",
    "found",
    "in_use",
    "make",
    "origin_of",
    "restore",
    "restore_counters",
    "verify",
]
