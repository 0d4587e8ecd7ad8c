"""Paths that are never limited: health checks, static files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.endpoint import canonical, matches, problem
from headgate.core.path import normalise_path
from headgate.errors import InvalidSettings

if TYPE_CHECKING:
    from collections.abc import Iterable


class Skipping:
    """A list of endpoints, written as in rules."""

    def __init__(self, patterns: Iterable[str]) -> None:
        """Raise `InvalidSettings` if one of them cannot be matched, or if they leave nothing to limit."""
        given = [patterns] if isinstance(patterns, str) else list(patterns)
        for pattern in given:
            wrong = problem(pattern)
            if wrong is not None:
                msg = f"skip: {wrong}"
                raise InvalidSettings(msg)
        self._patterns = [canonical(pattern) for pattern in given]
        if "/*" in self._patterns:
            msg = "skip has '/*', so that nothing would ever be limited; leave headgate out if you mean that"
            raise InvalidSettings(msg)

    def __contains__(self, path: object) -> bool:
        """Whether calls to a path pass without being counted."""
        if not self._patterns:
            return False
        normal = normalise_path(str(path))
        return any(matches(pattern, normal) for pattern in self._patterns)
