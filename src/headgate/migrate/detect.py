"""What a file is, and what it becomes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from headgate.adapters import yaml_text
from headgate.controlplane.envoy_import import from_envoy_ratelimit
from headgate.errors import InvalidFields, Problem
from headgate.migrate.kong import move_kong
from headgate.migrate.moved import Moved, Note, notes_in_order, rules_text
from headgate.migrate.nginx import move_nginx
from headgate.migrate.python_app import library_of, move_python

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCES: Final = ("slowapi", "flask-limiter", "nginx", "kong", "envoy")
_LIMIT_REQ: Final = re.compile(r"^\s*limit_req(?:_zone)?\s", re.MULTILINE)
_UNKNOWN: Final = (
    "this is neither a Python module with slowapi or flask-limiter, nor a configuration of nginx (limit_req), Kong "
    "(rate-limiting) or envoyproxy/ratelimit"
)


def move(text: str) -> Moved:
    """The equivalent of a file; `InvalidFields` if it is nothing that can be moved over."""
    if library_of(text) is not None:
        return move_python(text)
    if _LIMIT_REQ.search(text):
        return move_nginx(text)
    data = _yaml(text)
    for field, made in _BY_FIELD.items():
        if field in data:
            return made(data)
    raise InvalidFields([Problem((), _UNKNOWN)])


def _envoy(data: Mapping[str, Any]) -> Moved:
    rules, notes = from_envoy_ratelimit(data)
    return Moved("envoy", rules_text(rules), notes_in_order(Note(0, note) for note in notes))


_BY_FIELD: Final[Mapping[str, Callable[[Mapping[str, Any]], Moved]]] = {
    "descriptors": _envoy,
    "domain": _envoy,
    "_format_version": move_kong,
    "plugins": move_kong,
    "services": move_kong,
    "routes": move_kong,
}


def _yaml(text: str) -> Mapping[str, Any]:
    try:
        data = yaml_text.parse(text).data
    except Exception:  # noqa: BLE001 (whatever is wrong with it, it is none of these)
        return {}
    return data if isinstance(data, Mapping) else {}
