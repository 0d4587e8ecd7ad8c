"""Which route of a Starlette or FastAPI application a call will reach, found before the application runs.

A route has the template that a call is counted under, the limits attached to it, and whether it is exempt. Routes are
tried in the application's own order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headgate.edge.frameworks.limits import RouteLimit
from headgate.edge.frameworks.marks import check_counters, check_methods, is_exempt, is_marked, limits_at
from headgate.errors import InvalidSettings, WrongUse, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MAX_DEPTH: Final = 8
_REMEMBERED: Final = 4_096
_MAX_REMEMBERED_LENGTH: Final = 256
_EXPRESSION: Final = re.compile(r"[\^$()\[\]?*+|\\]")
"""In the templates of Django's `re_path`, and of what is mounted."""
_PARAMETER: Final = re.compile(r"[{<]")


class Route(NamedTuple):
    """The route of a call: its path template, its limits, and whether it is exempt."""

    template: str | None = None
    limits: tuple[RouteLimit, ...] = ()
    exempt: bool = False
    path: str | None = None
    """What rules see in place of the path, if that differs; see `routed_path`."""


def routed_path(template: str | None, path: str) -> str:
    """The path that rules see: as the framework's route spells it, with the caller's own text for its parameters.

    A framework may match more than one spelling of a path, by letter case for example. If rules saw the caller's, they
    could miss what the route answers. Routes whose parameters span several segments, and regular expressions, leave
    the path as it is.
    """
    if template is None or template == path or _EXPRESSION.search(template):
        return path
    segments, given = template.split("/"), path.split("/")
    if len(segments) != len(given):
        return path
    return "/".join(map(_segment, segments, given))


def _segment(segment: str, given: str) -> str:
    return given if _PARAMETER.search(segment) else segment


class Limited(NamedTuple):
    """A route with its methods, for descriptions of an application."""

    template: str
    methods: frozenset[str]
    route: Route


class _Entry(NamedTuple):
    """A route with its pattern."""

    pattern: re.Pattern[str]
    methods: frozenset[str] | None
    kinds: frozenset[str]
    route: Route
    below: tuple[_Entry, ...]
    """The routes of an application that is mounted here."""
    is_mount: bool


NO_ROUTE: Final = Route()
_HTTP: Final = frozenset({"http"})
_WEBSOCKET: Final = frozenset({"websocket"})


class Routes:
    """The routes of one application."""

    def __init__(self, app: object) -> None:
        """An application without a `routes` attribute has no known routes."""
        self._app = app
        self._count = -1
        self._entries: tuple[_Entry, ...] = ()
        self._known: dict[tuple[str, str, str], Route] = {}

    def find(self, kind: str, method: str, path: str) -> Route:
        """The route of a call; `path` is below the application's root."""
        routes = getattr(self._app, "routes", ())
        if len(routes) != self._count:  # some were added since
            self._entries = tuple(_entries(routes, "", _MAX_DEPTH))
            self._count = len(routes)
            self._known.clear()
        if not self._entries:
            return NO_ROUTE
        name = (kind, method, path)
        route = self._known.get(name)
        if route is None:
            route = _found(self._entries, kind, method, path) or NO_ROUTE
            seen = routed_path(route.template, path)
            if seen != path:
                route = route._replace(path=seen)
            if len(path) + len(method) <= _MAX_REMEMBERED_LENGTH:
                if len(self._known) >= _REMEMBERED:
                    self._known.clear()
                self._known[name] = route
        return route

    def limits(self) -> tuple[RouteLimit, ...]:
        """All limits of all routes; `InvalidSettings` if one has no effect."""
        return tuple(_limits(tuple(_entries(getattr(self._app, "routes", ()), "", _MAX_DEPTH))))

    def described(self) -> Iterator[Limited]:
        """All routes for requests that name their methods."""
        for entry in _entries(getattr(self._app, "routes", ()), "", 0):
            if entry.methods and entry.route.template is not None:
                yield Limited(entry.route.template, entry.methods, entry.route)


def _limits(entries: tuple[_Entry, ...]) -> Iterator[RouteLimit]:
    for entry in entries:
        yield from entry.route.limits
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
            return _found(entry.below, kind, method, rest) or entry.route
        if entry.methods is None or method in entry.methods:
            return entry.route
        partly = partly or entry.route
    return partly


def _entries(routes: Iterable[Any], prefix: str, depth: int) -> Iterator[_Entry]:
    for route in _flat(routes):
        pattern = getattr(route, "path_regex", None)
        path = getattr(route, "path", None)
        view = getattr(route, "endpoint", None)
        _refuse_mounted(route, view)
        if pattern is None or path is None:
            continue  # routed by host, or an unknown kind: such calls match rules by path alone
        below = getattr(route, "routes", None)
        if view is None:
            own = Route(f"{prefix}{path}/*")
            inner = tuple(_entries(below or (), prefix + path, depth - 1)) if depth else ()
            yield _Entry(pattern, None, _HTTP | _WEBSOCKET, own, inner, is_mount=True)
            continue
        methods = getattr(route, "methods", None)
        is_socket = methods is None and "WebSocket" in type(getattr(route, "original_route", route)).__name__
        check_methods(view)
        limits = tuple(dict.fromkeys((*limits_at(view), *_depended_on(getattr(route, "dependant", None)))))
        check_counters(limits)
        allowed = None if not methods else frozenset(methods)
        check_reached(limits, view, prefix + path, frozenset() if is_socket else allowed)
        own = Route(prefix + path, limits, is_exempt(view))
        yield _Entry(pattern, allowed, _WEBSOCKET if is_socket else _HTTP, own, (), is_mount=False)


def check_reached(limits: Iterable[RouteLimit], view: object, template: str, methods: frozenset[str] | None) -> None:
    """Refuse a limit that no call can reach; `methods` are those of the route, none for WebSockets, None for all."""
    if isinstance(view, RouteLimit):
        msg = f'the route {template} has a limit in place of a view; write @rate_limit("10/minute") above the view'
        raise WrongUse(msg)
    for limit in limits:
        options = limit.options
        if methods == frozenset() and (options.methods is not None or options.per_method):
            msg = f"methods and per_method have no effect on the WebSocket route {template}; leave them out"
            raise InvalidSettings(msg)
        if methods and options.methods is not None and not methods & options.methods:
            there = ", ".join(sorted(methods))
            msg = f"the limit {limit.name!r} is for methods that the route {template} does not have; it has {there}"
            raise InvalidSettings(msg)


def _refuse_mounted(route: object, view: object) -> None:
    """Refuse a mark at an application that is mounted, or routed by host: its calls reach many routes, or none."""
    for name in ("app", "_base_app"):
        app = getattr(route, name, None)
        if app is not None and app is not view and is_marked(app):
            msg = (
                f"the limit or exemption at the mounted application {short_repr(app)} would have no effect; "
                "write a rule or skip for its paths, such as /admin/*"
            )
            raise InvalidSettings(msg)


def _flat(routes: Iterable[Any]) -> Iterable[Any]:
    """Routes including those of included routers, which newer FastAPI keeps separately."""
    try:
        from fastapi.routing import iter_route_contexts  # noqa: PLC0415 (FastAPI may be missing or older)
    except ImportError:
        return routes
    flat: Iterable[Any] = iter_route_contexts(list(routes))
    return flat


def _depended_on(dependant: Any) -> Iterator[RouteLimit]:  # noqa: ANN401 (FastAPI's)
    if isinstance(getattr(dependant, "call", None), RouteLimit):
        yield dependant.call
    for each in getattr(dependant, "dependencies", ()):
        yield from _depended_on(each)
