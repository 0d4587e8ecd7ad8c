"""Attacks on the HTTP ports: ``python -m tests.support.http_attacks NAMES PORT CONNECTIONS SECONDS``.

The names are a list in JSON, run one after the other. `tests/support/http_target.py` is what they are directed
at, `tests/support/http_flood.py` puts both together.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from contextlib import suppress
from typing import Final, NamedTuple

HOST: Final = "127.0.0.1"
_LARGE: Final = 60_000
_PATIENCE: Final = 5.0


class Attack(NamedTuple):
    """What each connection sends, again and again, for as long as it may."""

    sent: bytes
    reads: bool = True
    """Whether it takes its answers."""
    piece: int = 1 << 20
    """So many bytes at once, with a pause behind them if they are not all."""
    keeps: bool = True
    """Whether it stays connected and sends more; else it connects anew each time."""
    admin: bool = False
    """Whether it goes to the port of the admin API."""
    many: int = 1
    """Times as many connections as are asked for."""


def _get(target: bytes, *lines: bytes) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: x\r\n%b\r\n" % (target, b"".join(line + b"\r\n" for line in lines))


def _post(path: bytes, body: bytes) -> bytes:
    return b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (path, len(body), body)


def _json(path: bytes, data: object) -> bytes:
    return _post(path, json.dumps(data).encode())


_CHECK: Final = _post(b"/v1/check", b'{"user":"flood","path":"/api/search"}')
_CHUNKED: Final = b"POST /v1/check HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
_AUTH: Final = b"/v1/forward-auth"
_GUESS: Final = b"Authorization: Bearer hgt_0123456789abcdefghijABCDEFGHIJ123Zk4c0"

PARSING: Final = {
    "query of empty members": _get(_AUTH + b"?" + b"a&" * 20_000),
    "query of encoded letters": _get(_AUTH + b"?mode=" + b"%41" * 20_000),
    "path of per cent signs": _get(b"/" + b"%" * _LARGE),
    "path of encoded letters": _get(b"/" + b"%41" * 20_000),
    "path at the bound": _get(_AUTH + b"/" + b"%" * 8_000),
    "path behind ours": _get(_AUTH + b"/" + b"%25" * 20_000),
    "forwarded path": _get(_AUTH, b"X-Original-URI: /" + b"%" * _LARGE),
    "forwarded path at the bound": _get(_AUTH, b"X-Original-URI: /" + b"%" * 8_000),
    "forwarded for": _get(_AUTH, b"X-Forwarded-For: " + b"127.0.0.1," * 6_000 + b"1"),
    "forwarded": _get(_AUTH, b"Forwarded: " + b"a=b," * 2_000 + b"a=b"),
    "token of 60 kB": _get(_AUTH, b"Authorization: Bearer " + b"a." * (_LARGE // 2)),
    "cookies": _get(_AUTH, b"Cookie: " + b"a=b; " * (_LARGE // 5)),
    "15,000 headers": _get(b"/livez", *[b"a:"] * 15_000),
    "connection options": _get(b"/livez", b"Connection: " + b"," * _LARGE),
    "empty lines": b"\r\n" * 30_000,
    "chunks of a byte": _CHUNKED + b"1\r\n \r\n" * 30_000,
    "trailers": _CHUNKED + b"0\r\n" + b"a:\r\n" * 2_000,
    "unknown member": _post(b"/v1/check", b'{"%b":1}' % (b"user" * 15_000)),
    "path in a body": _json(b"/v1/check", {"path": "/" + "%" * _LARGE}),
    "path at the bound in a body": _json(b"/v1/check", {"path": "/" + "%" * 8_000}),
    "user of 60 kB": _json(b"/v1/check", {"user": "é" * 10_000}),
    "attributes": _json(b"/v1/check", {"attributes": {str(number): "" for number in range(5_000)}}),
    "depth": _post(b"/v1/check", b'{"attributes":' * 4_000),
    "empty checks": _post(b"/v1/check:batch", b'{"checks":[%b]}' % b",".join([b"{}"] * 20_000)),
    "1,000 checks": _json(b"/v1/check:batch", {"checks": [{"user": "flood"}] * 1_000}),
    "descriptors": _json(b"/json", {"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}] * 1_900}),
    "descriptors at the bound": _json(b"/json", {"domain": "d", "descriptors": [{"entries": [{"key": "k"}]}] * 100}),
    "reserved key": _json(b"/v1/reserve", {"key": "k" * _LARGE, "limit": "5/minute"}),
    "settled text": _json(b"/v1/settle", {"reservation": "A" * _LARGE}),
}
"""Requests that are expensive to read, by name."""

ATTACKS: Final = {
    **{name: Attack(sent, keeps=False) for name, sent in PARSING.items()},
    "pipelined checks": Attack(_CHECK * 2_000),
    "pipelined checks, unread": Attack(_CHECK * 2_000, reads=False),
    "pipelined batches": Attack(PARSING["1,000 checks"] * 20),
    "metrics": Attack(_get(b"/metrics") * 100),
    "metrics, unread": Attack(_get(b"/metrics") * 100, reads=False),
    "readyz": Attack(_get(b"/readyz") * 100),
    "slow heads": Attack(_get(b"/livez", b"X: " + b"x" * 1_000), piece=1, many=50),
    "slow bodies": Attack(_post(b"/v1/check", b" " * 1_000), piece=1, many=50),
    "slow chunks": Attack(_CHUNKED + b"1\r\n \r\n" * 500, piece=3, many=50),
    "connections that say nothing": Attack(b"", many=500),
    "connections opened and closed": Attack(_get(b"/livez", b"Connection: close"), keeps=False, many=20),
    "bodies that do not end": Attack(
        b"POST /v1/check HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + b" " * 59_000
    ),
}

ON_ADMIN: Final = {
    "admin without a token": Attack(_get(b"/v1/rules"), admin=True, many=5),
    "admin with guessed tokens": Attack(_get(b"/v1/rules", _GUESS), admin=True, many=5),
    "admin bodies": Attack(_post(b"/v1/rules", b" " * _LARGE), keeps=False, admin=True, many=5),
    "admin paths": Attack(_get(b"/v1/" + b"%41" * 20_000), keeps=False, admin=True, many=5),
    "admin metrics": Attack(_get(b"/metrics"), admin=True, many=5),
    "admin readyz": Attack(_get(b"/readyz"), admin=True, many=5),
    "admin description": Attack(_get(b"/openapi.json"), admin=True, many=5),
    "admin slow heads": Attack(_get(b"/livez", b"X: " + b"x" * 1_000), piece=1, admin=True, many=10),
}
"""Those that need a database behind the service."""


async def _once(attack: Attack, port: int) -> None:
    """One connection, until the server closes it."""
    reader, writer = await asyncio.open_connection(HOST, port)
    sending = asyncio.create_task(_send(attack, writer))
    try:
        if attack.reads:
            async with asyncio.timeout(None if attack.keeps else _PATIENCE):
                while await reader.read(1 << 16) and attack.keeps:
                    pass
        else:
            await sending
    finally:
        sending.cancel()
        writer.transport.abort()
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())  # it is read nowhere else


async def _send(attack: Attack, writer: asyncio.StreamWriter) -> None:
    while attack.sent:
        for at in range(0, len(attack.sent), attack.piece):
            writer.write(attack.sent[at : at + attack.piece])
            await writer.drain()
            await asyncio.sleep(0.05 if attack.piece < len(attack.sent) else 0)
        if not attack.keeps:
            return
    await asyncio.sleep(3_600)


async def _again_and_again(attack: Attack, port: int) -> None:
    while True:
        with suppress(OSError, TimeoutError):
            await _once(attack, port)
        await asyncio.sleep(0.001)


async def run_attack(attack: Attack, port: int, connections: int, seconds: float) -> None:
    """Attack a port for so many seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*[_again_and_again(attack, port) for _ in range(connections * attack.many)])


def main(names: str, port: str, connections: str, seconds: str) -> None:
    """Run attacks."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for name in json.loads(names):
        asyncio.run(run_attack((ATTACKS | ON_ADMIN)[name], int(port), int(connections), float(seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
