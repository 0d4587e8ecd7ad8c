"""A gRPC server that is flooded by one program while another one asks it as usual."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc
from tests.support.envoy_messages import MESSAGES, OK, answer, question
from tests.support.grpc_attacks import METHOD

if TYPE_CHECKING:
    from tests.support.grpc_target import Target

PATIENCE = 10.0
_SECONDS_BETWEEN = 0.02
_HEALTH = "/grpc.health.v1.Health/Check"
_SERVING = 1


class Seen(NamedTuple):
    """What a normal client saw, and what the server measured."""

    asked: int
    answered: int
    longest_turn: float
    """Of the event loop, in seconds of processor time."""
    resident: int
    """Bytes of memory, at the end."""


def flood(target: Target, names: str, connections: int, seconds: float) -> Seen:
    """Attack a server for a while, and ask it fifty times a second all the time."""
    asked = answered = 0
    with grpc.insecure_channel(f"127.0.0.1:{target.port}") as channel:
        check: Any = channel.unary_unary(METHOD)
        health: Any = channel.unary_unary(_HEALTH)
        message = question("web", {"entries": {"remote_address": "203.0.113.7"}})
        check(message, timeout=PATIENCE)
        target.figures()
        command = [
            sys.executable,
            "-m",
            "tests.support.grpc_attacks",
            names,
            str(target.port),
            str(connections),
            str(seconds),
        ]
        attacker = subprocess.Popen(command)  # noqa: S603 (ourselves)
        try:
            while attacker.poll() is None:
                asked += 2
                answered += _is_answered(lambda: answer(check(message, timeout=PATIENCE)).overall_code == OK)
                answered += _is_answered(lambda: _status(health(b"", timeout=PATIENCE)) == _SERVING)
                time.sleep(_SECONDS_BETWEEN)
        finally:
            attacker.kill()
            attacker.wait()
    assert attacker.returncode == 0
    longest, resident, _ = target.figures()
    return Seen(asked, answered, longest, resident)


def _is_answered(ask: Any) -> bool:  # noqa: ANN401 (a call)
    try:
        return bool(ask())
    except grpc.RpcError:
        return False


def _status(message: bytes) -> int:
    status: int = MESSAGES["HealthCheckResponse"].FromString(message).status
    return status
