"""What the limiter knows of one call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from headgate.core.own_limits import OwnLimits
from headgate.errors import InvalidRequest, short_repr

NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})
_TEXTS: Final = ("user", "tenant", "api_key", "ip", "tier", "method", "path", "route")
_USUAL: Final = frozenset({str, type(None)})
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Request(NamedTuple):
    """One call, as the limiter sees it. Everything is optional; an empty text is the same as none."""

    user: str | None = None
    tenant: str | None = None
    api_key: str | None = None
    ip: str | None = None
    tier: str | None = None
    method: str | None = None
    path: str | None = None
    attributes: Mapping[str, str] = NO_ATTRIBUTES
    route: str | None = None
    """The framework's own template for the path, where it knows one."""
    cost: int | None = None
    """What the call costs under every rule, where the caller says; else each rule's price list does."""
    limits: OwnLimits | None = None
    """What the user and the API key have of their own, in place of the rules' limits."""
    assumed: bool = False
    """Whether a record of the caller could not be read, so that tier and limits are assumed."""

    def check(self) -> Request:
        """Return the request if every part has the right type; raise `InvalidRequest` otherwise."""
        user, tenant, api_key, ip, tier, method, path, attributes, route, _, limits, _ = self
        # Runs for every request, so one test covers the usual case.
        if not _USUAL.issuperset(map(type, (user, tenant, api_key, ip, tier, method, path, route))):
            _check_texts(self)
        if attributes is not NO_ATTRIBUTES:
            _check_attributes(attributes)
        if limits is not None and not isinstance(limits, OwnLimits):
            msg = f"limits are a headgate.core.own_limits.OwnLimits, not {short_repr(limits)}"
            raise InvalidRequest(msg)
        return self


def method_problem(method: str) -> str | None:
    """Why a method cannot be matched with rules, or None. An empty one is the same as none."""
    if not method or _TOKEN.fullmatch(method):
        return None
    return f"the method {short_repr(method)} is not a token (RFC 9110, section 5.6.2); write for example GET"


def _check_texts(request: Request) -> None:
    for name in _TEXTS:
        value = getattr(request, name)
        if value is not None and not isinstance(value, str):
            msg = f"{name} is text, not {short_repr(value)}"
            raise InvalidRequest(msg)


def _check_attributes(attributes: object) -> None:
    if not isinstance(attributes, Mapping):
        msg = f"attributes map names to texts; {short_repr(attributes)} does not"
        raise InvalidRequest(msg)
    for name, value in attributes.items():
        if not isinstance(name, str) or not isinstance(value, str):
            msg = f"attributes map names to texts; {short_repr(name)}: {short_repr(value)} does not"
            raise InvalidRequest(msg)
