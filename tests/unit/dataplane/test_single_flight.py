"""Of a crowd that wants to know the same, one asks and the others wait."""

from __future__ import annotations

import asyncio
import threading

from headgate.dataplane.single_flight import SingleFlight, wait_for


def test_one_asks_and_the_others_wait() -> None:
    """The first of a crowd has to ask; the others are told when it has its answer, and ask again where they must."""

    async def scenario() -> None:
        flights = SingleFlight(blocks=False)
        flight, is_mine = flights.begin("k")
        assert is_mine
        assert flights.begin("other")[1]
        same, is_mine = flights.begin("k")
        assert (same, is_mine) == (flight, False)
        waiting = asyncio.create_task(wait_for(same))
        await asyncio.sleep(0)
        assert not waiting.done()
        flights.end("k", flight)
        await waiting
        assert flights.begin("k")[1]

    asyncio.run(scenario())


def test_threads_wait_for_each_other() -> None:
    """Where the store blocks its caller, the crowd is threads."""
    flights = SingleFlight(blocks=True)
    flight, _ = flights.begin("k")
    same, is_mine = flights.begin("k")
    assert not is_mine
    waiting = threading.Thread(target=lambda: asyncio.run(wait_for(same)))
    waiting.start()
    flights.end("k", flight)
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_question_of_a_loop_that_has_ended_keeps_no_other_waiting() -> None:
    """On the next event loop it is asked anew, and the end of the old one does not end the new one."""
    flights = SingleFlight(blocks=False)

    async def begin() -> tuple[object, bool]:
        return flights.begin("k")

    old, _ = asyncio.run(begin())
    new, is_mine = asyncio.run(begin())
    assert is_mine
    assert isinstance(old, asyncio.Event)
    flights.end("k", old)
    assert not new.is_set()  # type: ignore[attr-defined] # an event, too


def test_without_a_loop_and_after_a_fork() -> None:
    """A store that never waits needs no event loop; a forked child forgets what its parent was asking."""
    flights = SingleFlight(blocks=False)
    assert flights.begin("k")[1]
    assert not flights.begin("k")[1]
    flights.forget()
    assert flights.begin("k")[1]
