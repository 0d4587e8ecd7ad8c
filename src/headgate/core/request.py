"""What the limiter knows of one call."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from headgate.errors import InvalidRequest

NO_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType({})
_TEXTS: Final = ("user", "tenant", "api_key", "ip", "tier", "method", "path", "route")


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

    def check(self) -> Request:
        """Return the request if every part has the right type; raise `InvalidRequest` otherwise."""
        for name in _TEXTS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                msg = f"{name} is text, not {value!r}"
                raise InvalidRequest(msg)
        if not isinstance(self.attributes, Mapping):
            msg = f"attributes map names to texts; {self.attributes!r} does not"
            raise InvalidRequest(msg)
        for name, value in self.attributes.items():
            if not isinstance(name, str) or not isinstance(value, str):
                msg = f"attributes map names to texts; {name!r}: {value!r} does not"
                raise InvalidRequest(msg)
        return self
