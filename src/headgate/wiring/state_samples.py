"""How things stand with what decides: rules, store and control plane, as samples."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from headgate.adapters.redis import RedisStore
from headgate.controlplane.subscriber import Followed, Origin
from headgate.core.breaker import State
from headgate.core.metrics import Sample
from headgate.core.units import SECOND
from headgate.dataplane.deny_cache import DenyCache
from headgate.dataplane.guarded import Guarded
from headgate.ports import RULES
from headgate.wiring import layer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headgate.dataplane.limiter import Limiter
    from headgate.edge.http.service import DecisionService
    from headgate.ports import CounterStore
    from headgate.wiring.control import ControlPlane
    from headgate.wiring.recording import Recordings

_BREAKER: Final = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}


def state_samples(
    worker: str, service: DecisionService, limiter: Limiter, control: ControlPlane | None
) -> list[Callable[[], Iterable[Sample]]]:
    """All of these, of one process."""
    sources = [service.samples, rules_samples(worker, service, limiter), store_samples(worker, limiter.store)]
    if control is not None:
        sources.append(control_samples(worker, control, asyncio.get_running_loop().time))
    return sources


def rules_samples(worker: str, service: DecisionService, limiter: Limiter) -> Callable[[], Iterator[Sample]]:
    """Samples of the rules in force."""

    def samples() -> Iterator[Sample]:
        snapshots, follower, blocks = limiter.snapshots, limiter.follower, limiter.snapshots.blocks
        now = snapshots.clock()
        yield Sample("headgate_ready", service.is_ready(), (worker,))
        yield Sample("headgate_snapshot", snapshots.current.number, (worker,))
        yield Sample("headgate_snapshot_age_seconds", max(0, now - snapshots.since) / SECOND, (worker,))
        yield Sample("headgate_blocks", 0 if blocks is None else blocks.size, (worker,))
        if follower is not None:
            unconfirmed = max(0, now - follower.confirmed) / SECOND
            yield Sample("headgate_rules_source", 1, (worker, Origin.FILE.word))
            yield Sample("headgate_rules_confirmed_age_seconds", unconfirmed, (worker,))
            yield Sample("headgate_rules_refused", follower.refused is not None, (worker,))

    return samples


def store_samples(worker: str, store: CounterStore) -> Callable[[], Iterator[Sample]]:
    """Samples of a store that is elsewhere; of one in this process there are none."""
    cache, guarded = layer(store, DenyCache), layer(store, Guarded)

    def samples() -> Iterator[Sample]:
        if cache is not None:
            yield Sample("headgate_deny_cache_hits_total", cache.hits)
            yield Sample("headgate_deny_cache_entries", cache.entries, (worker,))
            yield Sample("headgate_deny_cache_bytes", cache.bytes, (worker,))
        if guarded is None:
            return
        for source, number in guarded.degraded.items():
            yield Sample("headgate_degraded_limits_total", number, (source.value,))
        if isinstance(guarded.store, RedisStore):
            load = guarded.store.load
            yield Sample("headgate_checks_in_flight", load.in_flight, (worker,))
            yield Sample("headgate_checks_waiting", load.waiting, (worker,))
            yield Sample("headgate_checks_shed_total", load.shed)
            for node in guarded.store.topology.nodes():
                yield Sample("headgate_store_breaker", _BREAKER[node.state], (worker, node.name))

    return samples


def control_samples(worker: str, control: ControlPlane, time: Callable[[], float]) -> Callable[[], Iterator[Sample]]:
    """Samples of the control plane; `time` is the clock of its event loop."""
    subscriber, leader = control.runtime.subscriber, control.runtime.leader

    def samples() -> Iterator[Sample]:
        for origin in Origin:
            is_it = origin is subscriber.state[RULES].origin
            yield Sample("headgate_rules_source", is_it, (worker, origin.word))
        for followed in Followed:
            yield Sample("headgate_rules_following", followed is subscriber.followed, (worker, followed.value))
        yield Sample("headgate_feed_up", subscriber.confirmed is not None and subscriber.trouble is None, (worker,))
        if subscriber.confirmed is not None:
            unconfirmed = time() - subscriber.confirmed
            yield Sample("headgate_rules_confirmed_age_seconds", unconfirmed, (worker,))
        yield Sample("headgate_announcements_missed_total", subscriber.missed)
        yield Sample("headgate_identity_assumed_total", control.identity.assumed)
        for reason, number in subscriber.refused.items():
            yield Sample("headgate_documents_refused_total", number, (reason.value,))
        if leader is not None:
            yield Sample("headgate_database_up", leader.notifier.is_database_up, (worker,))

    return samples


def recording_samples(worker: str, recordings: Recordings) -> Iterator[Sample]:
    """What was recorded, and what became of it; of sinks only in the process that ships."""
    (emitted, waiting, dropped, left_out), sinks = recordings.state()
    yield Sample("headgate_events_emitted_total", emitted)
    yield Sample("headgate_events_dropped_total", dropped)
    yield Sample("headgate_events_left_out_total", left_out)
    yield Sample("headgate_events_waiting", waiting, (worker,))
    for place, (ledger, error, lag) in sinks.items():
        yield Sample("headgate_sink_stored_total", ledger.stored, place)
        yield Sample("headgate_sink_refused_total", ledger.refused, place)
        yield Sample("headgate_sink_dropped_total", ledger.dropped, place)
        yield Sample("headgate_sink_spooled", ledger.spooled, (worker, *place))
        yield Sample("headgate_sink_lag_seconds", lag, (worker, *place))
        yield Sample("headgate_sink_up", error is None, (worker, *place))
