"""Questions to a database that may be away, slow or busy."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.dataplane.fake_records import until

from headgate.core.breaker import State
from headgate.dataplane.asking import MOST_AT_ONCE, Asking
from headgate.errors import DatabaseError
from headgate.testing import FakeClock


class Questions:
    """Counts how many are under way; `go_on` lets them end."""

    def __init__(self) -> None:
        self.under_way = self.most = self.asked = 0
        self.go_on = asyncio.Event()

    async def __call__(self) -> None:
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            await self.go_on.wait()
        finally:
            self.under_way -= 1


def test_not_more_than_so_many_are_under_way() -> None:
    """Whoever comes later waits for a turn, and gets it."""

    async def run() -> None:
        asking, questions = Asking(FakeClock(), 5.0), Questions()
        tasks = [asyncio.create_task(asking.ask(questions)) for _ in range(3 * MOST_AT_ONCE)]
        await until(lambda: questions.under_way == MOST_AT_ONCE)
        await asyncio.sleep(0)
        questions.go_on.set()
        await asyncio.gather(*tasks)
        assert (questions.asked, questions.most) == (3 * MOST_AT_ONCE, MOST_AT_ONCE)

    asyncio.run(run())


def test_a_question_that_hangs_keeps_its_turn() -> None:
    """One that is late is still work for the database, so no other takes its place; closing ends it."""

    async def run() -> None:
        asking, questions = Asking(FakeClock(), 0.005, between_probes=60), Questions()
        tasks = [asyncio.create_task(asking.ask(questions)) for _ in range(MOST_AT_ONCE + 1)]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, DatabaseError) for result in results)
        assert {str(result) for result in results} == {
            "the database did not answer within 0.005 s",
            "32 questions to the database are under way already",
        }
        assert (questions.asked, questions.under_way) == (MOST_AT_ONCE, MOST_AT_ONCE)
        await asking.close()
        assert questions.under_way == 0

    asyncio.run(run())


def test_a_database_that_answers_others_is_not_away() -> None:
    """A question that is late because there are so many does not stop all others."""

    async def run() -> None:
        asking, go_on = Asking(FakeClock(), 0.02), asyncio.Event()

        async def slow() -> None:
            await go_on.wait()

        async def quick() -> None:
            return None

        for _ in range(10):
            late = asyncio.create_task(asking.ask(slow))
            await asyncio.sleep(0)
            await asking.ask(quick)
            with pytest.raises(DatabaseError, match="did not answer"):
                await late
        assert asking.state is State.CLOSED
        await asking.close()

    asyncio.run(run())


def test_after_failures_nobody_asks_until_a_probe_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    """The breaker opens, is probed with the last question, and closes; both are logged."""

    async def run() -> None:
        asking = Asking(FakeClock(), 1.0, between_probes=0.001)
        is_away = True
        asked = 0

        async def question() -> None:
            nonlocal asked
            asked += 1
            if is_away:
                msg = "away"
                raise DatabaseError(msg, transient=True)

        for _ in range(20):
            with pytest.raises(DatabaseError):
                await asking.ask(question)
        assert asked < 20
        assert asking.state is State.OPEN
        before = asked
        await until(lambda: asked >= before + 3)
        is_away = False
        await until(lambda: asking.state.value == "closed")
        await asking.ask(question)
        await asking.close()

    asyncio.run(run())
    assert "circuit breaker is open" in caplog.text
    assert "circuit breaker is closed" in caplog.text


def test_a_failure_that_comes_after_the_deadline_bothers_nobody() -> None:
    """Neither the answer nor the error of a question that was given up reaches anyone."""

    async def run() -> None:
        asking, go_on = Asking(FakeClock(), 0.001), asyncio.Event()

        async def question() -> None:
            await go_on.wait()
            msg = "late"
            raise DatabaseError(msg, transient=True)

        with pytest.raises(DatabaseError, match="did not answer"):
            await asking.ask(question)
        go_on.set()
        await asyncio.sleep(0.001)
        await asking.close()

    asyncio.run(run())
