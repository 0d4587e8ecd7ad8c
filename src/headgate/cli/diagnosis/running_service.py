"""Whether a service with these settings runs on this machine already."""

from __future__ import annotations

import json
import ssl
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from headgate.settings import Settings

_SECONDS: Final = 3.0
_EVERYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (it is compared, not bound)


class RunningService(NamedTuple):
    """A decision service that answered."""

    url: str
    status: str

    @property
    def is_ready(self) -> bool:
        """Whether it decides."""
        return self.status == "ready"


def running_service(chosen: Settings) -> RunningService | None:
    """The decision service on the host and port of these settings; None if there is none, or something else."""
    if not chosen.port:
        return None
    host = _EVERYWHERE.get(chosen.host, chosen.host)
    scheme = "http" if chosen.tls_cert is None else "https"
    connection: HTTPConnection
    if scheme == "https":
        # Only whether it answers is wanted: the certificate need not name this machine.
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = HTTPSConnection(host, chosen.port, timeout=_SECONDS, context=context)
    else:
        connection = HTTPConnection(host, chosen.port, timeout=_SECONDS)
    try:
        connection.request("GET", "/readyz")
        said = json.loads(connection.getresponse().read())
    except (OSError, HTTPException, ValueError):
        return None
    finally:
        connection.close()
    if not isinstance(said, dict) or "status" not in said:
        return None
    shown_host = f"[{host}]" if ":" in host else host
    return RunningService(f"{scheme}://{shown_host}:{chosen.port}", str(said["status"]))
