"""Of a crowd that wants to know the same, one asks and the others wait."""

from __future__ import annotations

import asyncio
import threading

from headgate.dataplane.questions import Questions, wait_for


def test_one_asks_and_the_others_wait() -> None:
    """The first of a crowd has to ask; the others are told when it has its answer, and ask again where they must."""

    async def scenario() -> None:
        questions = Questions(blocks=False)
        question, is_mine = questions.begin("k")
        assert is_mine
        assert questions.begin("other")[1]
        same, is_mine = questions.begin("k")
        assert (same, is_mine) == (question, False)
        waiting = asyncio.create_task(wait_for(same))
        await asyncio.sleep(0)
        assert not waiting.done()
        questions.end("k", question)
        await waiting
        assert questions.begin("k")[1]

    asyncio.run(scenario())


def test_threads_wait_for_each_other() -> None:
    """Where the store blocks its caller, the crowd is threads."""
    questions = Questions(blocks=True)
    question, _ = questions.begin("k")
    same, is_mine = questions.begin("k")
    assert not is_mine
    waiting = threading.Thread(target=lambda: asyncio.run(wait_for(same)))
    waiting.start()
    questions.end("k", question)
    waiting.join(30)
    assert not waiting.is_alive()


def test_a_question_of_a_loop_that_has_ended_keeps_no_other_waiting() -> None:
    """On the next event loop it is asked anew, and the end of the old one does not end the new one."""
    questions = Questions(blocks=False)

    async def begin() -> tuple[object, bool]:
        return questions.begin("k")

    old, _ = asyncio.run(begin())
    new, is_mine = asyncio.run(begin())
    assert is_mine
    assert isinstance(old, asyncio.Event)
    questions.end("k", old)
    assert not new.is_set()  # type: ignore[attr-defined] # an event, too


def test_without_a_loop_and_after_a_fork() -> None:
    """A store that never waits needs no event loop; a forked child forgets what its parent was asking."""
    questions = Questions(blocks=False)
    assert questions.begin("k")[1]
    assert not questions.begin("k")[1]
    questions.forget()
    assert questions.begin("k")[1]
