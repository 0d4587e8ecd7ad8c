"""Whole checks on the memory store: rules found, counters taken together, a verdict."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import limits.aio
import limits.storage
import limits.strategies
from bench import rule_sets
from bench.hits import DEFAULT, PLENTY, WITHOUT_END
from bench.measure import EventLoops, Watch, guard, guarded, race
from bench.rows import growth, pace

import headgate
import headgate.sync

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from bench.rows import Outcome

    from headgate import Request

    Loop: TypeAlias = Callable[[Sequence[Request]], int]
    AsyncLoop: TypeAlias = Callable[[Sequence[Request]], Awaitable[int]]


def three_layers(rules: int, users: int, rounds: int, watch: Watch, outcome: Outcome) -> None:
    """Checks that meet three rules of many, against as many hits of limits, which looks for no rules at all."""
    requests = rule_sets.three_layer_requests(rules, users)
    limiter = headgate.sync.Limiter.open("memory://", rule_sets.three_layers(rules, PLENTY))
    guard("a request, by all layers,", len(limiter.check(requests[0]).decisions), 3)
    with EventLoops() as loops:
        makers: dict[str, Callable[[int], Loop]] = {
            "check": lambda amount: _check(rule_sets.three_layers(rules, amount)),
            "check, default": lambda amount: _check(rule_sets.three_layers(rules, amount, DEFAULT)),
            "limits": _three_hits,
            "await check": lambda amount: loops.own(_check_async(rule_sets.three_layers(rules, amount))),
            "await limits": lambda amount: loops.own(_three_hits_async(amount)),
        }
        for name, make in makers.items():
            guard(name, make(5)(requests[:1] * 10), 5)
        runs = {name: guarded(name, make(PLENTY), requests, users) for name, make in makers.items()}
        timings = race(f"checks, {rules:,} rules", runs, users, rounds, watch)
    name, against = "memory_check_1000_rules", "3 × limits fixed_window"
    outcome.rows.append(pace(name, timings["check"], timings["limits"], against))
    outcome.rows.append(pace(f"{name}_default", timings["check, default"], timings["limits"], against))
    outcome.rows.append(pace(f"{name}_async", timings["await check"], timings["await limits"], against))


def more_rules(counts: Sequence[int], users: int, rounds: int, watch: Watch, outcome: Outcome) -> None:
    """Checks that meet one rule of few and of many, whatever tells the rules apart."""
    fewest, most = counts[0], counts[-1]
    rows = []
    outcome.figures["rules"] = []
    for kind in rule_sets.KINDS:
        runs = {}
        for count in counts:
            requests = rule_sets.differing_requests(kind, count, users)
            make = partial(rule_sets.differing, kind, count)
            guard(kind, _check(make(5))(requests[:1] * 10), 5)
            runs[f"{count}"] = guarded(kind, _check(make(PLENTY)), requests, users)
        timings = race(f"checks, rules by {kind}", runs, users, rounds, watch)
        against = f"{fewest:,} rules, by {kind}"
        rows.append(growth(f"rules_growth_{kind}", timings[f"{most}"], timings[f"{fewest}"], against))
        outcome.figures["rules"] += [
            {"kind": kind, "rules": int(count), "best": timing.best * 1e6, "median": timing.median * 1e6}
            for count, timing in timings.items()
        ]
    worst = max(rows, key=lambda row: row.ratio)
    outcome.rows.append(replace(worst, name="rules_growth", against=f"{worst.against} (the worst)"))
    outcome.rows.extend(rows)


def _check(rules: Mapping[str, Any]) -> Loop:
    check = headgate.sync.Limiter.open("memory://", rules).check

    def loop(requests: Sequence[Request]) -> int:
        admitted = 0
        for request in requests:
            if check(request).allowed:
                admitted += 1
        return admitted

    return loop


def _check_async(rules: Mapping[str, Any]) -> AsyncLoop:
    check = headgate.Limiter.open("memory://", rules).check

    async def loop(requests: Sequence[Request]) -> int:
        admitted = 0
        for request in requests:
            if (await check(request)).allowed:
                admitted += 1
        return admitted

    return loop


def _three_hits(amount: int) -> Loop:
    hit = limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage()).hit
    total, each = limits.parse(f"{WITHOUT_END}/day"), limits.parse(f"{amount}/day")

    def loop(requests: Sequence[Request]) -> int:
        admitted = 0
        for request in requests:
            user, path = request.user or "", request.path or ""
            if hit(total, "all") and hit(each, user) and hit(each, user, path):
                admitted += 1
        return admitted

    return loop


def _three_hits_async(amount: int) -> AsyncLoop:
    hit = limits.aio.strategies.FixedWindowRateLimiter(limits.aio.storage.MemoryStorage()).hit
    total, each = limits.parse(f"{WITHOUT_END}/day"), limits.parse(f"{amount}/day")

    async def loop(requests: Sequence[Request]) -> int:
        admitted = 0
        for request in requests:
            user, path = request.user or "", request.path or ""
            if await hit(total, "all") and await hit(each, user) and await hit(each, user, path):
                admitted += 1
        return admitted

    return loop
