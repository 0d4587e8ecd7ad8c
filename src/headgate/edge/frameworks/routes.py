"""Which route of a Starlette or FastAPI application a call will reach, before the application is asked.

A route gives the template that a call is counted under, the limits that stand at it, and
whether it is exempt. Routes are tried in the application's own order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.edge.frameworks.limits import RouteLimit, is_exempt, limits_at

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Iterator

_MAX_DEPTH: Final = 8
_REMEMBERED: Final = 4_096
_MAX_REMEMBERED_LENGTH: Final = 256


class Route(NamedTuple):
    """Where a call goes."""

    template: str | None = None
    limits: tuple[RouteLimit, ...] = ()
    exempt: bool = False


class _Entry(NamedTuple):
    """One route."""

    pattern: re.Pattern[str]
    methods: frozenset[str] | None
    kinds: frozenset[str]
    place: Route
    below: tuple[_Entry, ...]
    """What an application that is mounted here has."""
    is_mount: bool


NO_ROUTE: Final = Route()
_HTTP: Final = frozenset({"http"})
_WEBSOCKET: Final = frozenset({"websocket"})


class Routes:
    """The routes of one application."""

    def __init__(self, app: object) -> None:
        """An application without `routes` has none that can be seen."""
        self._app = app
        self._count = -1
        self._entries: tuple[_Entry, ...] = ()
        self._known: dict[tuple[str, str, str], Route] = {}

    def find(self, kind: str, method: str, path: str) -> Route:
        """The place that a call goes to; `path` is below the application's root."""
        routes = getattr(self._app, "routes", ())
        if len(routes) != self._count:  # some were added since
            self._entries = tuple(_entries(routes, "", _MAX_DEPTH))
            self._count = len(routes)
            self._known.clear()
        if not self._entries:
            return NO_ROUTE
        name = (kind, method, path)
        place = self._known.get(name)
        if place is None:
            place = _found(self._entries, kind, method, path) or NO_ROUTE
            if len(path) + len(method) <= _MAX_REMEMBERED_LENGTH:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[name] = place
        return place

    def limits(self) -> Iterator[RouteLimit]:
        """All limits that stand at some route."""
        yield from _limits(tuple(_entries(getattr(self._app, "routes", ()), "", _MAX_DEPTH)))


def _limits(entries: tuple[_Entry, ...]) -> Iterator[RouteLimit]:
    for entry in entries:
        yield from entry.place.limits
        yield from _limits(entry.below)


def _found(entries: tuple[_Entry, ...], kind: str, method: str, path: str) -> Route | None:
    """As Starlette does: the first route whose pattern and method fit, else the first whose pattern does."""
    partly: Route | None = None
    for entry in entries:
        match = entry.pattern.match(path) if kind in entry.kinds else None
        if match is None:
            continue
        if entry.is_mount:
            rest = "/" + (match.groupdict().get("path") or "")
            return _found(entry.below, kind, method, rest) or entry.place
        if entry.methods is None or method in entry.methods:
            return entry.place
        partly = partly or entry.place
    return partly


def _entries(routes: Iterable[Any], prefix: str, depth: int) -> Iterator[_Entry]:
    for route in _flat(routes):
        pattern = getattr(route, "path_regex", None)
        path = getattr(route, "path", None)
        if pattern is None or path is None:
            continue  # by host, or something unheard of: found by path alone, under the rules' own patterns
        view = getattr(route, "endpoint", None)
        below = getattr(route, "routes", None)
        if view is None:
            place = Route(f"{prefix}{path}/*")
            inner = tuple(_entries(below or (), prefix + path, depth - 1)) if depth else ()
            yield _Entry(pattern, None, _HTTP | _WEBSOCKET, place, inner, is_mount=True)
            continue
        methods = getattr(route, "methods", None)
        is_socket = methods is None and "WebSocket" in type(getattr(route, "original_route", route)).__name__
        limits = (*limits_at(view), *_depended_on(getattr(route, "dependant", None)))
        place = Route(prefix + path, tuple(dict.fromkeys(limits)), is_exempt(view))
        allowed = None if not methods else frozenset(methods)
        yield _Entry(pattern, allowed, _WEBSOCKET if is_socket else _HTTP, place, (), is_mount=False)


def _flat(routes: Iterable[Any]) -> Iterable[Any]:
    """Routes with those of included routers among them, where FastAPI keeps them apart."""
    try:
        from fastapi.routing import iter_route_contexts  # noqa: PLC0415 (there need be no FastAPI, or not so new a one)
    except ImportError:
        return routes
    flat: Iterable[Any] = iter_route_contexts(list(routes))
    return flat


def _depended_on(dependant: Any) -> Iterator[RouteLimit]:  # noqa: ANN401 (FastAPI's)
    if isinstance(getattr(dependant, "call", None), RouteLimit):
        yield dependant.call
    for each in getattr(dependant, "dependencies", ()):
        yield from _depended_on(each)
