"""What was found, how grave it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple


class Severity(StrEnum):
    """How grave something is."""

    ERROR = "error"
    """A service with these settings does not start, or does not limit as its rules say."""
    WARNING = "warning"
    """It works, and will surprise its operator one day."""
    NOTE = "note"
    """Nothing is wrong; something could not be looked at, or should be known."""


class IssueKind(NamedTuple):
    """Something that can be found, for every system alike."""

    severity: Severity
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Issue:
    """Something that was found."""

    code: str
    severity: Severity
    subject: str
    sentence: str
    """What it is here, with its figures."""
    remedy: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "code": self.code,
            "severity": self.severity.value,
            "subject": self.subject,
            "message": self.sentence,
            "remedy": self.remedy,
        }


class Passed(NamedTuple):
    """Something that was looked at and is well, in a sentence."""

    subject: str
    sentence: str
