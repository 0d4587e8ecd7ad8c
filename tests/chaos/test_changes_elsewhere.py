"""A limit that is raised through the admin API of one service: how soon another one admits what it has refused."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.chaos.load import share
from tests.support.valkey import Server, free_port
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.chaos.figures import Figures
    from tests.support.service import Start

SPREADS: Final[dict[str, Any]] = {
    "exact": "exact",
    "leased": "leased",
    "auto": "auto",
    "shards": {"shards": 3},
    "borrow": {"regions": "borrow", "home": "eu"},
}
AMOUNT: Final = 200
RAISES: Final = 5
TOKEN: Final = "token-of-this-test-1234"  # noqa: S105 (of a service that ends with the test)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Server]:
    """The server of the home region."""
    server = Server(tmp_path / "home", free_port())
    yield server
    server.kill()


def test_a_raised_limit_is_admitted_within_a_second(
    start: Start, valkey: Server, home: Server, database_url: str, tmp_path: Path, figures: Figures
) -> None:
    """However the limit is spread: from the answer of the admin API until the other service admits."""
    one, other = (
        start(
            database_url=database_url,
            redis_url=valkey.url,
            region="us",
            region_urls=f"eu={home.url}",
            data_dir=str(tmp_path / name),
            admin_token=TOKEN,
        )
        for name in ("one", "other")
    )
    for mode, spread in SPREADS.items():
        rule = {"name": mode, "match": {"endpoints": [f"/{mode}"]}, "per": "global", "algorithm": "fixed_window"}
        body = rule | {"limits": f"{AMOUNT}/day", "spread": spread}
        assert one.admin.post("/v1/rules", json=body).status_code == 201

        def admits(path: str = f"/{mode}") -> bool:
            return bool(other.check(user="ann", path=path).json()["allowed"])

        def limit(path: str = f"/{mode}") -> object:
            return other.http.post("/v1/peek", json={"user": "ann", "path": path}).json().get("limit")

        wait_until(lambda: limit() == AMOUNT, "the rule is there")
        seconds = []
        for number in range(1, RAISES + 1):
            wait_until(lambda: not admits() and not admits(), "it is refused", interval=0)
            found = one.admin.get(f"/v1/rules/{mode}")
            raised = body | {"limits": f"{(1 + number) * AMOUNT}/day"}
            tag = {"If-Match": found.headers["ETag"]}
            assert one.admin.put(f"/v1/rules/{mode}", json=raised, headers=tag).status_code == 200
            began = time.monotonic()
            wait_until(admits, "it is admitted", interval=0.005)
            seconds.append(time.monotonic() - began)
        case = f"limit raised in another process, {mode}"
        figures.note(case, "median until it is admitted", 1_000 * share(seconds, 0.5), "ms")
        figures.check(case, "longest until it is admitted", 1_000 * max(seconds), "ms", 1_000)
