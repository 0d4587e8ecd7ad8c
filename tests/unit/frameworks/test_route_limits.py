"""Limits at routes work with everything else of a limiter: blocks, new rules, observers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fastapi import Depends, FastAPI
from flask import Flask
from tests.support.applications import scope_of, status

from headgate import Limiter, fastapi, sync
from headgate.adapters import zones
from headgate.adapters.clock import monotonic, wall_clock
from headgate.core.blocklist import BlockList
from headgate.core.parsing.rule_set import parse_rule_set
from headgate.dataplane.recorder import Recorder
from headgate.flask import RateLimiter
from headgate.wiring import parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from headgate.dataplane import limiter as dataplane

    Scene = tuple[dataplane.Limiter, Callable[[], int]]

_HERE = [{"id": "1", "network": "127.0.0.1/32", "reason": "Scraping."}]


def _in_fastapi(observer: Recorder | None = None) -> Scene:
    limiter = Limiter(*parts("memory://"), observer=observer)
    app = FastAPI()
    app.get("/", dependencies=[Depends(fastapi.rate_limit("100/day"))])(lambda: "here")
    fastapi.setup(app, limiter)
    return limiter, lambda: asyncio.run(status(app, scope_of("/", peer="127.0.0.1")))


def _in_flask(observer: Recorder | None = None) -> Scene:
    limiter = sync.Limiter(Limiter(*parts("memory://"), observer=observer))
    app = Flask("small")
    app.get("/")(RateLimiter(app, limiter).limit("100/day")(lambda: "here"))
    return limiter.waiting, lambda: app.test_client().get("/").status_code


@pytest.fixture(params=[_in_fastapi, _in_flask])
def scene(request: pytest.FixtureRequest) -> Scene:
    """A limiter, and a way to call a route with a limit of its own."""
    made: Scene = request.param()
    return made


def test_who_is_blocked_is_so_at_routes_with_limits(scene: Scene) -> None:
    """A block applies at once at routes that were called before, and ends when it is lifted."""
    limiter, call = scene
    assert call() == 200
    limiter.snapshots.publish_blocks(BlockList(_HERE))
    assert call() == 403
    limiter.snapshots.publish_blocks(BlockList([]))
    assert call() == 200


def test_new_rules_hold_at_routes_with_limits(scene: Scene) -> None:
    """Rules that become active later are decided together with the route's limit."""
    limiter, call = scene
    assert call() == 200
    rules: Any = [{"name": "shut", "action": "block"}]
    limiter.snapshots.publish(parse_rule_set(rules, zones.zone))
    assert call() == 403


@pytest.mark.parametrize("open_scene", [_in_fastapi, _in_flask])
def test_the_observer_sees_checks_at_routes_with_limits(open_scene: Callable[[Recorder], Scene]) -> None:
    """The limiter's observer sees checks at routes with limits of their own."""
    recorder = Recorder(wall_clock, monotonic)
    _, call = open_scene(recorder)
    assert [call(), call()] == [200, 200]
    assert sum(count.requests for count in recorder.take_counts()[0]) == 2
