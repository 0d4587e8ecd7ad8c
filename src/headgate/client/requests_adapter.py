"""An adapter for requests that keeps to the limits of the APIs it calls.

session = requests.Session()
session.mount("https://", RateLimitAdapter())
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from requests.adapters import HTTPAdapter

from headgate.adapters.clock import sleep
from headgate.client.calls import Pacers

if TYPE_CHECKING:
    from collections.abc import Callable

    from requests import PreparedRequest, Response


class RateLimitAdapter(HTTPAdapter):
    """Waits before calls as the API's limits require, and retries refused calls."""

    def __init__(self, pacers: Pacers | None = None, *, sleep: Callable[[float], None] = sleep, **options: Any) -> None:  # noqa: ANN401 (those of HTTPAdapter)
        """Sessions with the same `pacers` share their budgets; `options` are those of `HTTPAdapter`."""
        self._pacers = Pacers() if pacers is None else pacers
        self._sleep = sleep
        super().__init__(**options)

    def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:  # noqa: ANN401 (those of HTTPAdapter)
        """Send the request when the limits allow it, and again if it was refused."""
        is_replayable = request.body is None or isinstance(request.body, bytes | str)
        call = self._pacers.call(
            request.method or "GET", request.url or "", request.headers, has_replayable_body=is_replayable
        )
        while True:
            call.take_turn(self._sleep)
            try:
                response = super().send(request, *arguments, **options)
            except BaseException:
                call.broken_off()
                raise
            if call.is_final(response.status_code, response.headers.items()):
                return response
            response.close()
