"""Limits of plain functions, without a framework."""

from __future__ import annotations

import asyncio
import gc
from typing import Any
from weakref import ReferenceType, ref

import pytest

from headgate import InvalidSettings, Limiter, Refused, Request, WrongUse
from headgate.errors import InvalidRequest
from headgate.functions import RateLimiter, admission


def _kinds(limiter: RateLimiter, *limit: Any, **options: Any) -> list[Any]:  # noqa: ANN401 (of a limit)
    """A synchronous and an asynchronous function with one limit."""

    @limiter.limit(*limit, **options)
    def now(user: str, cost: int = 1) -> str:
        if cost != 1:
            admission().settle(cost)
        return user

    @limiter.limit(*limit, **options)
    async def later(user: str, cost: int = 1) -> str:
        if cost != 1:
            admission().settle(cost)
        return user

    def ran(user: str, cost: int = 1) -> str:
        return asyncio.run(later(user, cost))

    return [(now, now), (ran, later)]


def _passed(function: Any, *users: str, **more: int) -> list[bool]:  # noqa: ANN401 (a function)
    answers = []
    for user in users:
        try:
            answers.append(function(user, **more) == user)
        except Refused as refused:
            answers.append(not refused.verdict.retry_after)
    return answers


def test_a_function_counts_for_all_calls_or_for_a_key() -> None:
    """Without a key all calls count together; each function has its own counter unless the limit has a name."""
    for function, _ in _kinds(RateLimiter(), "2/day"):
        assert _passed(function, "ann", "bob", "ann") == [True, True, False]
    for function, _ in _kinds(RateLimiter(), "1/day", key=lambda user, *_, **__: user):
        assert _passed(function, "ann", "bob", "ann") == [True, True, False]
    (now, _), (later, _) = _kinds(RateLimiter(), "2/day", name="both")
    assert _passed(now, "ann") + _passed(later, "ann", "ann") == [True, True, False]


def test_functions_among_the_options_get_the_arguments() -> None:
    """Synchronous or not, they work with both kinds of functions."""

    async def cost(_user: str, cost: int = 1) -> int:
        return cost

    for function, _ in _kinds(
        RateLimiter(), "5/day", key=lambda user, *_, **__: user, exempt_when=lambda user, *_, **__: user == "root"
    ):
        assert all(_passed(function, *["root"] * 9))
        assert _passed(function, "ann", cost=5) + _passed(function, "ann") == [True, False]
    for function, _ in _kinds(RateLimiter(), "5/day", cost=cost, deduct_when=lambda result: result != "free"):
        assert all(_passed(function, "free", "free", cost=5))
        assert _passed(function, "ann", cost=4) + _passed(function, "ann", "ann") == [True, True, False]
    for identify in (lambda user, *_, **__: user, lambda user, *_, **__: Request(user=user)):
        for function, _ in _kinds(RateLimiter(identify=identify), "1/day", per="user"):
            assert _passed(function, "ann", "bob", "ann") == [True, True, False]
    for function, _ in _kinds(RateLimiter(identify=lambda *_, **__: 7), "1/day", per="user"):
        with pytest.raises(InvalidRequest, match="identify returns a user's id"):
            function("ann")


def test_deduct_when_is_asked_about_exceptions() -> None:
    """A function that raises is counted, unless `deduct_when`, which gets the exception, says no; it is raised on.

    An end that is no error of the function, such as a cancellation, is counted without asking.
    """
    asked: list[object] = []

    def deduct_when(result: object) -> bool:
        asked.append(result)
        return not isinstance(result, ConnectionError)

    errors: list[BaseException] = [ConnectionError("no"), ValueError("yes"), KeyboardInterrupt()]

    def fails(index: int) -> None:
        raise errors[index]

    async def fails_too(index: int) -> None:
        raise errors[index]

    limiter = RateLimiter()
    limit = limiter.limit("2/day", deduct_when=deduct_when)
    waiting = limiter.limit("2/day", deduct_when=deduct_when)(fails_too)
    for function in (limit(fails), lambda index: asyncio.run(waiting(index))):
        asked.clear()
        for index in (0, 0, 0, 1, 0, 2):
            with pytest.raises(type(errors[index])):
                function(index)
        assert asked == [errors[index] for index in (0, 0, 0, 1, 0)]
        with pytest.raises(Refused):
            function(0)


def test_refusals_and_switches() -> None:
    """`on_refused` gives another result; `enabled` and `exempt_when` of the limiter hold for all of its functions."""
    for function, _ in _kinds(RateLimiter(on_refused=lambda verdict, user, *_: f"{user} {verdict.policy}"), "1/day"):
        assert [function("ann"), function("ann")] == ["ann", "ann 1-day"]
    for limiter in (RateLimiter(enabled=False), RateLimiter(exempt_when=lambda *_, **__: True)):
        for function, _ in _kinds(limiter, "1/day"):
            assert all(_passed(function, "ann", "ann"))


def test_peek_and_reset() -> None:
    """Both take the function and the arguments of a call, for functions of both kinds."""
    limiter = RateLimiter()
    for function, decorated in _kinds(limiter, "1/day", key=lambda user, *_, **__: user):
        assert _passed(function, "ann") == [True]
        assert not limiter.peek(decorated, "ann").allowed
        limiter.reset(decorated, "ann")
        assert limiter.peek(decorated, "ann").allowed
    with pytest.raises(WrongUse, match="has no limit of this limiter"):
        limiter.peek(len)
    limiter.close()


def test_delays_and_slots() -> None:
    """A throttled call waits, and a slot is held until the function has ended, also if it fails."""
    for function, _ in _kinds(RateLimiter(), "1000/second burst 1", algorithm="token_bucket", action="throttle"):
        assert all(_passed(function, "ann", "ann", "ann"))

    limiter = RateLimiter()

    @limiter.limit("1 concurrent", algorithm="concurrency")
    def nested(deep: int) -> None:
        if deep:
            nested(deep - 1)

    for _ in range(2):
        with pytest.raises(Refused):
            nested(1)
        nested(0)


def test_a_limiter_of_an_event_loop_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections belong to one loop: the limiter that has them is closed when the loop ends, and not kept."""
    opened: list[ReferenceType[Limiter]] = []
    closed: list[asyncio.AbstractEventLoop] = []

    class Watched(Limiter):
        @classmethod
        def open(cls, *args: Any, **kwargs: Any) -> Limiter:  # noqa: ANN401 (as it is)
            made = super().open(*args, **kwargs)
            opened.append(ref(made))
            return made

        async def close(self) -> None:
            closed.append(asyncio.get_running_loop())
            await super().close()

    monkeypatch.setattr("headgate.functions.Limiter", Watched)
    limiter = RateLimiter("redis://127.0.0.1:1?on_store_error=allow")

    @limiter.limit("9/day")
    async def later() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def twice() -> asyncio.AbstractEventLoop:
        return [await later(), await later()][0]

    assert [asyncio.run(twice()) for _ in range(3)] == closed
    gc.collect()
    assert [each() for each in opened] == [None] * 3
    for _ in range(3):  # loops that end without a word
        loop = asyncio.new_event_loop()
        loop.run_until_complete(twice())
        loop.close()
    assert asyncio.run(twice()) is closed[-1]
    del loop
    gc.collect()
    assert [each() for each in opened] == [None] * 7
    limiter.close()


def test_wrong_use_says_what_is_right() -> None:
    """Options without effect, generators, classes and missing limits raise with a sentence."""
    limiter = RateLimiter()
    for name, value in (("methods", ["GET"]), ("per_method", True), ("status", 400), ("message", "no")):
        with pytest.raises(InvalidSettings, match=f"{name} has no effect here: a plain function has no HTTP request"):
            limiter.limit("1/day", **{name: value})  # type: ignore[arg-type] # any option
    with pytest.raises(InvalidSettings, match="skip has no effect on plain functions"):
        RateLimiter(skip=["/a"])

    def generator() -> Any:  # noqa: ANN401 (a generator)
        yield 1

    for wrong, sentence in ((generator, "is a generator"), (int, "is not a function"), ("f", "is not a function")):
        with pytest.raises(WrongUse, match=sentence):
            limiter.limit("1/day")(wrong)  # type: ignore[type-var] # wrong on purpose
    with pytest.raises(TypeError, match="the limit is missing"):
        limiter.limit(lambda: 1)
    with pytest.raises(WrongUse, match="no limited function is running here"):
        admission()
