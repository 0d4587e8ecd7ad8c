"""Answers that many viewers ask for at once."""

from __future__ import annotations

import asyncio

import pytest

from headgate.edge.admin.shared_answers import SharedAnswers


class Counted:
    """Makes answers, and counts how many; each waits for `go`."""

    def __init__(self) -> None:
        self.made = 0
        self.go = asyncio.Event()

    async def __call__(self) -> bytes:
        self.made += 1
        await self.go.wait()
        return b"%d" % self.made


def test_ten_viewers_cause_one_answer_and_a_moment_later_another() -> None:
    """Those that come while it is made wait for it; those that come soon after get it; then it is made anew."""

    async def run() -> None:
        now = 0.0
        shared, make = SharedAnswers(lambda: now), Counted()
        waiting = [asyncio.create_task(shared.get("a", 0.5, make)) for _ in range(10)]
        await asyncio.sleep(0)
        now = 9.0  # however long it takes
        make.go.set()
        assert await asyncio.gather(*waiting) == [b"1"] * 10
        assert await shared.get("a", 10.0, make) == b"1"
        assert await shared.get("b", 10.0, make) == b"2"
        assert await shared.get("a", 9.0, make) == b"3"

    asyncio.run(run())


def test_a_viewer_that_leaves_takes_nothing_from_the_others() -> None:
    """The answer is made for those who still wait."""

    async def run() -> None:
        shared, make = SharedAnswers(), Counted()
        leaving, staying = (asyncio.create_task(shared.get("a", 1.0, make)) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        make.go.set()
        assert await staying == b"1"
        assert leaving.cancelled()

    asyncio.run(run())


def test_a_failure_is_told_and_not_remembered() -> None:
    """All who wait get it; the next call tries again."""

    async def run() -> None:
        shared = SharedAnswers()

        async def fail() -> bytes:
            await asyncio.sleep(0)
            msg = "away"
            raise OSError(msg)

        found = await asyncio.gather(*(shared.get("a", 60.0, fail) for _ in range(3)), return_exceptions=True)
        assert [type(each) for each in found] == [OSError] * 3
        assert len(shared) == 0
        with pytest.raises(OSError, match="away"):
            await shared.get("a", 60.0, fail)

    asyncio.run(run())


def test_only_so_many_are_remembered() -> None:
    """The oldest goes first."""

    async def run() -> None:
        shared, make = SharedAnswers(most=2), Counted()
        make.go.set()
        for question in ("a", "b", "c", "b", "a"):
            await shared.get(question, 60.0, make)
        assert (len(shared), make.made) == (2, 4)

    asyncio.run(run())
