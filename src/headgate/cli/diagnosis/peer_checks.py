"""What else a service calls: Kafka, the issuer of tokens, a collector of traces, the archive."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headgate.adapters.jwks_document import jwks_at
from headgate.archive.factory import archive_store
from headgate.errors import HeadgateError

if TYPE_CHECKING:
    from headgate.cli.diagnosis.catalog import Report
    from headgate.settings import Settings

_SECONDS: Final = 3.0


async def check_peers(chosen: Settings, report: Report) -> None:
    """Look at each that the settings name."""
    if chosen.kafka_brokers is not None:
        await _check_kafka(chosen.kafka_brokers, report)
    if chosen.jwt_jwks_url is not None and chosen.jwt_algorithms:
        await _check_keys(chosen.jwt_jwks_url, report)
    if chosen.otel_endpoint is not None:
        parts = urlsplit(chosen.otel_endpoint)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        reason = await _why_unreachable(parts.hostname or "", port)
        if reason is not None:
            report.add("traces", "traces-unusable", f"{parts.hostname}:{port}: {reason}")
        else:
            report.well("traces", f"{parts.hostname}:{port} can be reached")
    if chosen.archive_url is not None or chosen.archive_daily:
        await asyncio.to_thread(_check_archive, chosen, report)


async def _check_kafka(text: str, report: Report) -> None:
    try:
        from headgate.adapters.kafka.producer import Brokers  # noqa: PLC0415 (an extra)
    except ModuleNotFoundError:
        return  # which is said of the packages
    try:
        servers = [server.rpartition(":")[::2] for server in Brokers.parse(text).servers.split(",")]
    except HeadgateError as error:
        report.add("Kafka", "kafka-unusable", f"HEADGATE_KAFKA_BROKERS is malformed: {error}")
        return
    reasons = [(host, port, await _why_unreachable(host.strip("[]"), int(port))) for host, port in servers]
    away = [f"{host}:{port} ({reason})" for host, port, reason in reasons if reason is not None]
    if len(away) == len(reasons):
        report.add("Kafka", "kafka-unusable", f"no broker can be reached: {', '.join(away)}")
    else:
        report.well("Kafka", f"{len(reasons) - len(away)} of {len(reasons)} brokers can be reached")


async def _check_keys(url: str, report: Report) -> None:
    try:
        document = await jwks_at(url)()
    except (HeadgateError, OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "reason", None) or str(error)
        report.add("tokens", "keys-unusable", f"HEADGATE_JWT_JWKS_URL cannot be read: {reason}")
        return
    report.well("tokens", f"the keys of tokens were read, {len(document)} bytes")


async def _why_unreachable(host: str, port: int) -> str | None:
    try:
        async with asyncio.timeout(_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"no answer within {_SECONDS:g} s"
    except OSError as error:
        return os.strerror(error.errno) if error.errno is not None and error.errno > 0 else str(error)
    writer.close()
    return None


def _check_archive(chosen: Settings, report: Report) -> None:
    try:
        store = archive_store(chosen)
        if store.url.startswith("s3:"):
            store.names()
    except HeadgateError as error:
        report.add("archive", "archive-unusable", str(error))
        return
    if not store.url.startswith("s3:"):
        folder = Path(store.url).absolute()
        there = next(each for each in (folder, *folder.parents) if each.exists())
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            report.add("archive", "archive-unusable", f"{there} is no folder that this user can write")
            return
    report.well("archive", f"{store.url} can be used")
