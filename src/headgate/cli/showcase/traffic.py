"""The traffic of the present: requests to the decision service, second by second, never more than a bound."""

from __future__ import annotations

import json
from collections import Counter
from http.client import HTTPConnection, HTTPException
from random import Random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from headgate.adapters.clock import monotonic, wall_clock
from headgate.core.units import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headgate.cli.showcase.scenario import Caller, Scenario
    from headgate.core.request import Request

MAX_PER_SECOND: Final = 500
"""Requests of one second, whatever the scenario says."""
_SECONDS: Final = 5.0
_ALLOWED: Final = 200


def body_of(caller: Caller, request: Request, keys: Mapping[str, str]) -> dict[str, Any]:
    """A request as /v1/check takes it: with the API key of its caller, or with its user."""
    body: dict[str, Any] = {"ip": request.ip, "method": request.method, "path": request.path}
    key = keys.get(caller.key or "")
    if key is not None:
        body["api_key"] = key
    elif request.user is not None:
        body["user"] = request.user
    if request.attributes:
        body["attributes"] = dict(request.attributes)
    return body


class Traffic:
    """Sends what the scenario says, and counts the answers."""

    def __init__(
        self, url: str, scenario: Scenario, keys: Mapping[str, str], rate: float, sleep: Callable[[float], None]
    ) -> None:
        """`rate` is relative to that of the scenario. `sleep` waits for so many seconds."""
        parts = urlsplit(url)
        self._connection = HTTPConnection(parts.hostname or "", parts.port, timeout=_SECONDS)
        self._scenario, self._keys, self._rate, self._sleep = scenario, keys, rate, sleep
        self._draw = Random()  # noqa: S311 (nothing secret depends on it)
        self.answers: Counter[str] = Counter()
        """How many were allowed, denied, or not answered."""

    def seconds(self) -> Iterator[Counter[str]]:
        """Send the requests of one second after the other, each spread over its second; yields its answers."""
        while True:
            began, second = monotonic(), wall_clock() // SECOND
            sent = list(self._scenario.requests(second, self._rate, self._draw))
            self._draw.shuffle(sent)
            outcomes: Counter[str] = Counter()
            chosen = sent[:MAX_PER_SECOND]
            for index, (caller, request) in enumerate(chosen):
                ahead = began + index / len(chosen) - monotonic()
                if ahead > 0:
                    self._sleep(ahead)
                outcomes[self._send(caller, request)] += 1
            self._sleep(max(0.0, began + 1 - monotonic()))
            self.answers += outcomes
            yield outcomes

    def _send(self, caller: Caller, request: Request) -> str:
        body = json.dumps(body_of(caller, request, self._keys))
        try:
            self._connection.request("POST", "/v1/check", body, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            response.read()
        except (OSError, HTTPException):
            self._connection.close()  # the next request opens it again
            return "unanswered"
        return "allowed" if response.status == _ALLOWED else "denied"

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
