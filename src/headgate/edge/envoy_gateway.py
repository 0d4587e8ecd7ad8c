"""The configuration of an Envoy that asks headgate's forward-auth endpoint before it lets a call through.

`deploy/envoy/ext_authz.yaml` is the same for people who run their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from headgate.edge.access import TOKEN_HEADER
from headgate.edge.http import forward_auth
from headgate.errors import InvalidSettings, short_repr

if TYPE_CHECKING:
    from headgate.edge.listening import Address

_TYPES: Final = "type.googleapis.com/envoy.extensions"
_HEADERS_FOR_CALLERS: Final = ("x-ratelimit-", "ratelimit")
_SECONDS_TO_ASK: Final = 10
"""Longer than calls are held back by throttling."""
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Upstream:
    """The application."""

    host: str
    port: int
    is_tls: bool

    @classmethod
    def parse(cls, url: str) -> Upstream:
        """From an address such as ``http://127.0.0.1:9000``."""
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS[parts.scheme]
            good = bool(parts.hostname) and not (
                parts.path.strip("/") or parts.query or parts.fragment or parts.username
            )
        except (KeyError, ValueError):
            good, port = False, 0
        if not good:
            msg = f"--upstream is {short_repr(url)}; write an address without a path, such as http://127.0.0.1:9000"
            raise InvalidSettings(msg)
        return cls(parts.hostname or "", port, parts.scheme == "https")


@dataclass(frozen=True, slots=True)
class Front:
    """What callers connect to, and what happens to them while headgate is unavailable."""

    address: Address
    cert: str | None
    key: str | None
    lets_pass: bool
    trusts_this_machine: bool = False
    """Whether a proxy on this machine is trusted to say for whom it calls."""
    service_token: str | None = None
    """What the service asks of its callers, if anything."""


def envoy_config(front: Front, service: Address, upstream: Upstream, trusted_ca: str | None) -> dict[str, Any]:
    """The whole configuration. `trusted_ca` is the file that vouches for an upstream with TLS."""
    application = _cluster("application", upstream.host, upstream.port, seconds=5)
    if upstream.is_tls:
        validation = {"trusted_ca": {"filename": trusted_ca}}
        names = [{"san_type": "DNS", "matcher": {"exact": upstream.host}}]
        tls = {"validation_context": {**validation, "match_typed_subject_alt_names": names}}
        application["transport_socket"] = _socket(
            "UpstreamTlsContext", {"sni": upstream.host, "common_tls_context": tls}
        )
    return {
        "static_resources": {
            "listeners": [_listener(front, upstream)],
            "clusters": [_cluster("headgate", service.host, service.port, seconds=1), application],
        }
    }


def _listener(front: Front, upstream: Upstream) -> dict[str, Any]:
    chain: dict[str, Any] = {"filters": [_connections(front, upstream)]}
    if front.cert is not None:
        certificate = {"certificate_chain": {"filename": front.cert}, "private_key": {"filename": front.key}}
        common = {"tls_certificates": [certificate], "alpn_protocols": ["h2", "http/1.1"]}
        chain["transport_socket"] = _socket("DownstreamTlsContext", {"common_tls_context": common})
    address = {"address": front.address.host, "port_value": front.address.port}
    return {"name": "front", "address": {"socket_address": address}, "filter_chains": [chain]}


def _connections(front: Front, upstream: Upstream) -> dict[str, Any]:
    # Streams may take as long as they like, so nothing but silence ends them.
    route: dict[str, Any] = {"cluster": "application", "timeout": "0s", "idle_timeout": "3600s"}
    if upstream.is_tls:
        route["host_rewrite_literal"] = upstream.host
    filters = [
        {"name": "envoy.filters.http.ext_authz", "typed_config": _asking(front)},
        {"name": "envoy.filters.http.router", "typed_config": {"@type": f"{_TYPES}.filters.http.router.v3.Router"}},
    ]
    if front.trusts_this_machine:
        filters.insert(0, {"name": "envoy.filters.http.header_mutation", "typed_config": _peer_appended()})
    hosts = [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]
    return {
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": {
            "@type": f"{_TYPES}.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "front",
            "use_remote_address": True,
            "skip_xff_append": front.trusts_this_machine,  # see `_peer_appended`
            # As headgate reads paths, so that no spelling of one gets around a rule.
            "normalize_path": True,
            "merge_slashes": True,
            "upgrade_configs": [{"upgrade_type": "websocket"}],
            "route_config": {"virtual_hosts": hosts},
            "http_filters": filters,
        },
    }


def _peer_appended() -> dict[str, Any]:
    """The other end of the connection, behind the hops that it names itself.

    Envoy does the same, but writes its own address in place of a loopback one, and that would not be trusted.
    """
    header = {"key": "x-forwarded-for", "value": "%DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT%"}
    appended = {"append": {"header": header, "append_action": "APPEND_IF_EXISTS_OR_ADD"}}
    return {
        "@type": f"{_TYPES}.filters.http.header_mutation.v3.HeaderMutation",
        "mutations": {"request_mutations": [appended]},
    }


def _asking(front: Front) -> dict[str, Any]:
    patterns = [{"prefix": name, "ignore_case": True} for name in _HEADERS_FOR_CALLERS]
    asking: dict[str, Any] = {
        "path_prefix": forward_auth.PATH,
        "server_uri": {"uri": "http://headgate", "cluster": "headgate", "timeout": f"{_SECONDS_TO_ASK}s"},
        "authorization_response": {"allowed_client_headers_on_success": {"patterns": patterns}},
    }
    if front.service_token is not None:
        # In place of what a caller sends by that name. A per cent sign begins a variable unless it is doubled.
        token = {"key": TOKEN_HEADER, "value": front.service_token.replace("%", "%%")}
        asking["authorization_request"] = {"headers_to_add": [token]}
    return {
        "@type": f"{_TYPES}.filters.http.ext_authz.v3.ExtAuthz",
        "transport_api_version": "V3",
        "failure_mode_allow": front.lets_pass,
        "status_on_error": {"code": "ServiceUnavailable"},
        # Headgate gets all headers: its settings say which of them has the API key.
        "allowed_headers": {"patterns": [{"safe_regex": {"regex": ".*"}}]},
        "http_service": asking,
    }


def _cluster(name: str, host: str, port: int, seconds: int) -> dict[str, Any]:
    endpoint = {"address": {"socket_address": {"address": host, "port_value": port}}}
    return {
        "name": name,
        "type": "STRICT_DNS",
        "connect_timeout": f"{seconds}s",
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
    }


def _socket(kind: str, context: dict[str, Any]) -> dict[str, Any]:
    typed = {"@type": f"{_TYPES}.transport_sockets.tls.v3.{kind}", **context}
    return {"name": "envoy.transport_sockets.tls", "typed_config": typed}
