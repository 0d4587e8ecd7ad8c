"""Files that are read again when they have changed: certificates, and texts that hold a password."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Generic, TypeVar

from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

log = logging.getLogger("headgate")

T = TypeVar("T")


class ReloadedValue(Generic[T]):
    """A value that is made of files, and made again once one of them has changed.

    Each use gets the new one; what cannot be made is logged, and the value before stays. There is no timer and
    no signal: the files are looked at when the value is needed.
    """

    def __init__(self, what: str, files: Sequence[str | Path], make: Callable[[], T], value: T) -> None:
        """`value` was made by `make` a moment ago; `what` is what the log calls it."""
        self._what = what
        self._files = tuple(map(str, files))
        self._make = make
        self._value = value
        self._seen = self._look()

    def __call__(self) -> T:
        """The value of the files as they are now."""
        found = self._look()
        if found != self._seen:
            self._seen = found
            try:
                self._value = self._make()
            except (HeadgateError, OSError, ValueError) as error:  # perhaps half of them are written
                log.warning("not reloaded: %s: %s; the previous version stays in use", self._what, error)
            else:
                log.info("reloaded: %s, from %s", self._what, ", ".join(self._files))
        return self._value

    def _look(self) -> tuple[object, ...]:
        return tuple(map(_identity, self._files))


def _identity(file: str) -> object:
    """What differs between a file and the next one of that name, also where a link is set to another folder."""
    try:
        found = os.stat(file)  # noqa: PTH116 (also of a link's target, and fast)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
