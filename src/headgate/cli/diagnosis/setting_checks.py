"""Settings that cannot be read, have no effect, or let in more than they should."""

from __future__ import annotations

from dataclasses import fields
from importlib.util import find_spec
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from headgate.adapters.clock import wall_clock
from headgate.cli.token_rules import check_tokens
from headgate.errors import HeadgateError, InvalidSettings
from headgate.setting_effects import idle_settings
from headgate.settings import (
    Settings,
    complete,
    from_environment,
    given_settings,
    unknown_variables,
    variable_of,
    with_options,
)
from headgate.wiring.identity import identity_from
from headgate.wiring.listeners import transport
from headgate.wiring.serving import check_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.cli.diagnosis.catalog import Report

_SUBJECT: Final = "settings"
_MAX_TRUSTED: Final = 2**24
"""Addresses. A private network of /8 is the widest that a fleet of proxies has."""


def read_settings(environ: Mapping[str, str], options: Mapping[str, str | None], report: Report) -> Settings:
    """The complete settings; those that cannot be read have their defaults, and are reported."""
    readable: dict[str, str] = {}
    for each in fields(Settings):
        names = [variable_of(each.name), *([f"{variable_of(each.name)}_FILE"] if each.metadata["secret"] else [])]
        given = {name: environ[name] for name in names if environ.get(name, "").strip()}
        try:
            from_environment(given)
        except InvalidSettings as error:
            report.add(_SUBJECT, "setting-malformed", str(error))
        else:
            readable |= given
    chosen = from_environment(readable)
    for name, text in options.items():
        try:
            chosen = with_options(chosen, {name: text})
        except InvalidSettings as error:
            report.add(_SUBJECT, "setting-malformed", str(error))
    for sentence in unknown_variables(environ):
        report.add(_SUBJECT, "setting-unknown", sentence)
    return complete(chosen)


def check_settings(
    chosen: Settings, environ: Mapping[str, str], options: Mapping[str, str | None], report: Report
) -> None:
    """What each setting is good for beside the others."""
    before = len(report.issues)
    given = given_settings(environ) | {name for name, text in options.items() if text is not None}
    for name, reason, is_refused in idle_settings(chosen, given, has_grpc=find_spec("hpack") is not None):
        code = "setting-refused" if is_refused else "setting-without-effect"
        report.add(_SUBJECT, code, f"{variable_of(name)} has no effect: {reason}")
    _try("workers-on-memory", lambda: check_workers(chosen), report)
    _try("token-weak", lambda: check_tokens(chosen), report)
    _try("tls-unusable", lambda: transport(chosen), report)
    _try("jwt-unusable", lambda: identity_from(chosen, None, None, wall_clock), report)
    _check_reach(chosen, report)
    _check_backups(chosen, report)
    if len(report.issues) == before:
        report.well(_SUBJECT, f"{len(given)} given, all readable and with an effect")


def _check_reach(chosen: Settings, report: Report) -> None:
    """Who can call, and whose word counts."""
    is_open = not _is_loopback(chosen.host)
    if is_open and chosen.service_token is None and chosen.tls_client_ca is None:
        sentence = f"HEADGATE_HOST is {chosen.host}, and callers need neither a token nor a certificate"
        report.add(_SUBJECT, "open-to-network", sentence)
    if chosen.database_url is not None and not _is_loopback(chosen.admin_host):
        sentence = f"HEADGATE_ADMIN_HOST is {chosen.admin_host}, and tokens travel there unencrypted"
        report.add(_SUBJECT, "admin-open-to-network", sentence)
    wide = [str(network) for network in chosen.trusted_proxies if _is_too_wide(network.num_addresses, network.version)]
    if wide:
        sentence = f"HEADGATE_TRUSTED_PROXIES has {', '.join(wide)}: whatever such a caller says of its address counts"
        report.add(_SUBJECT, "proxies-trust-all", sentence)
    if is_open and not chosen.trusted_proxies:
        sentence = "X-Forwarded-For and Forwarded are ignored, because HEADGATE_TRUSTED_PROXIES is not set"
        report.add(_SUBJECT, "proxies-none", sentence)


def _check_backups(chosen: Settings, report: Report) -> None:
    named = {"backup_daily": chosen.backup_daily, "base_backup_folder": chosen.base_backup_folder is not None}
    making = " and ".join(variable_of(name) for name, is_set in named.items() if is_set)
    if making and chosen.database_url is not None and chosen.backup_keep is None:
        report.add(_SUBJECT, "backups-unbounded", f"HEADGATE_BACKUP_KEEP is not set beside {making}")


def _is_too_wide(addresses: int, version: int) -> bool:
    return addresses > (_MAX_TRUSTED if version == 4 else 2**96)  # noqa: PLR2004 (IPv4; an IPv6 provider has /32)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _try(code: str, check: Callable[[], object], report: Report) -> None:
    try:
        check()
    except HeadgateError as error:
        report.add(_SUBJECT, code, str(error))
