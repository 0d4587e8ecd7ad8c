"""The service of the part about cold users: ``python -m bench.cold_users_server FOLDER REDIS_URL PORT``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import uvloop
from bench.http_server import PATIENT

from headgate.edge.http.server import ShutdownTimes, freeze_gc, serve
from headgate.edge.listening import Address
from headgate.edge.telemetry import Telemetry
from headgate.settings import Settings
from headgate.wiring.serving import decision_service

RULES = """
tiers: {free: {limits: {api: 1000000/hour}}, premium: {limits: {api: 2000000/hour}}}
default_tier: free
rules:
  - {name: search, per: [user], limits: "tier:api"}
"""
"""One rule, which admits everything, by the tier."""


async def _run(folder: Path, redis_url: str, port: int) -> None:
    rules = folder / "rules.yaml"
    rules.write_text(RULES, encoding="utf-8")
    database = f"embedded://{folder}/postgres"
    settings = replace(Settings(), data_dir=folder, redis_url=redis_url + PATIENT, database_url=database)
    settings = replace(settings, rules_file=rules, events=False)
    async with decision_service(settings, Telemetry()) as running:
        freeze_gc()
        await serve(
            running.service, Address("127.0.0.1", port), ShutdownTimes(0, 1), lambda: print("ready", flush=True)
        )


if __name__ == "__main__":
    uvloop.run(_run(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
