"""Who may connect to the gRPC server, and who may ask: the same as of the decision service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.edge.access import TOKEN_HEADER
from headgate.edge.grpc.methods import HEALTH

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from headgate.edge.access import Access

PROTOCOL: Final = "h2"
_OPEN_TO_ALL: Final = frozenset({HEALTH})
"""As `/readyz` is: probes have no token, and nothing is decided there."""


class Protection(NamedTuple):
    """What has to be shown; as it is here, nothing."""

    tls: ssl.SSLContext | None = None
    access: Access | None = None

    def admits(self, fields: Mapping[str, str]) -> bool:
        """Whether a call with these header fields may be answered."""
        if self.access is None or fields.get(":path") in _OPEN_TO_ALL:
            return True
        return self.access.admits(fields.get(TOKEN_HEADER), fields.get("authorization"))
