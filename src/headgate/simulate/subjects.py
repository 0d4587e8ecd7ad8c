"""Who asked, and who would have been denied how often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from headgate.core.request import Request

MOST_SUBJECTS: Final = 500_000
NOBODY: Final = ("unknown", "")


class Subject(NamedTuple):
    """Somebody, and what became of their requests."""

    kind: str
    """``user``, ``api_key``, ``tenant`` or ``ip``: the first of them that is known."""
    name: str
    requests: int
    denied: int
    denied_beside: int
    rules: dict[str, int]
    """How often which rule of the draft denied."""


class _Story:
    __slots__ = ("denied", "denied_beside", "requests", "rules")

    def __init__(self) -> None:
        self.requests = self.denied = self.denied_beside = 0
        self.rules: dict[str, int] = {}


class Subjects:
    """Counts by subject, of as many as there is room for."""

    def __init__(self) -> None:
        """Nobody has asked yet."""
        self._stories: dict[tuple[str, str], _Story] = {}
        self.left_out = 0
        """Requests of subjects for which there was no room."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self._stories)

    def add(self, request: Request, rule: str | None, denied: int, denied_beside: int) -> None:
        """Count one request, whether it is denied (1, by `rule`) or not (0)."""
        name = subject_of(request)
        story = self._stories.get(name)
        if story is None:
            if len(self._stories) >= MOST_SUBJECTS:
                self.left_out += 1
                return
            story = self._stories[name] = _Story()
        story.requests += 1
        if denied:
            story.denied += 1
            if rule is not None:
                story.rules[rule] = story.rules.get(rule, 0) + 1
        story.denied_beside += denied_beside

    @property
    def denied(self) -> int:
        """How many are denied at least once by the draft."""
        return sum(story.denied > 0 for story in self._stories.values())

    @property
    def denied_beside(self) -> int:
        """How many are denied at least once by the rules beside it."""
        return sum(story.denied_beside > 0 for story in self._stories.values())

    def worst(self, most: int) -> list[Subject]:
        """Those that are denied most often by either side, the worst first."""
        concerned = [(name, story) for name, story in self._stories.items() if story.denied or story.denied_beside]
        concerned.sort(key=lambda each: (-each[1].denied, -each[1].denied_beside, each[0]))
        return [
            Subject(*name, story.requests, story.denied, story.denied_beside, story.rules)
            for name, story in concerned[:most]
        ]


def subject_of(request: Request) -> tuple[str, str]:
    """Who asks: the first that is known of user, API key, tenant and address."""
    if request.user:
        return ("user", request.user)
    if request.api_key:
        return ("api_key", request.api_key)
    if request.tenant:
        return ("tenant", request.tenant)
    return ("ip", request.ip) if request.ip else NOBODY
