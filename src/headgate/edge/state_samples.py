"""The state of one process as metric samples: rules, store, control plane, events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from headgate.adapters.redis import RedisStore
from headgate.controlplane.subscriber import DocumentOrigin, Followed
from headgate.core.breaker import State
from headgate.core.metrics import Sample
from headgate.core.units import SECOND
from headgate.dataplane.regional import Regional
from headgate.ports import RULES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headgate.controlplane.runtime import ControlRuntime
    from headgate.dataplane.deny_cache import DenyCache
    from headgate.dataplane.exporter import Exporter
    from headgate.dataplane.flusher import Flusher
    from headgate.dataplane.guarded import Guarded
    from headgate.dataplane.identity import Identity
    from headgate.dataplane.leased import LeaseCounts, Leased
    from headgate.dataplane.limiter import Limiter
    from headgate.edge.http.service import DecisionService

_BREAKER: Final = {State.CLOSED: 0, State.HALF_OPEN: 1, State.OPEN: 2}


def rules_samples(worker: str, service: DecisionService, limiter: Limiter) -> Callable[[], Iterator[Sample]]:
    """Samples of the active rules and blocks."""

    def samples() -> Iterator[Sample]:
        snapshots, follower, blocks = limiter.snapshots, limiter.follower, limiter.snapshots.blocks
        now = snapshots.clock()
        yield Sample("headgate_ready", service.is_ready(), (worker,))
        yield Sample("headgate_snapshot", snapshots.current.number, (worker,))
        yield Sample("headgate_snapshot_age_seconds", max(0, now - snapshots.since) / SECOND, (worker,))
        yield Sample("headgate_blocks", 0 if blocks is None else blocks.size, (worker,))
        if follower is not None:
            unconfirmed = max(0, now - follower.confirmed) / SECOND
            yield Sample("headgate_rules_source", 1, (worker, DocumentOrigin.FILE.word))
            yield Sample("headgate_rules_confirmed_age_seconds", unconfirmed, (worker,))
            yield Sample("headgate_rules_refused", follower.refused is not None, (worker,))

    return samples


def store_samples(
    worker: str, cache: DenyCache | None, guarded: Guarded | None, leased: Leased | None = None
) -> Callable[[], Iterator[Sample]]:
    """Samples of a store on a server; a store in memory has none of these parts, and no samples."""

    def samples() -> Iterator[Sample]:
        if leased is not None:
            yield from _lease_samples(worker, leased.counts)
        if cache is not None:
            yield Sample("headgate_deny_cache_hits_total", cache.hits)
            yield Sample("headgate_deny_cache_entries", cache.entries, (worker,))
            yield Sample("headgate_deny_cache_bytes", cache.bytes, (worker,))
        if guarded is None:
            return
        for source, number in guarded.degraded.items():
            yield Sample("headgate_degraded_limits_total", number, (source.value,))
        regional, shared = _layer(guarded.store, Regional), _layer(guarded.store, RedisStore)
        if regional is not None:
            yield from _region_samples(worker, regional)
        if shared is not None:
            load = shared.load
            yield Sample("headgate_checks_in_flight", load.in_flight, (worker,))
            yield Sample("headgate_checks_waiting", load.waiting, (worker,))
            yield Sample("headgate_checks_shed_total", load.shed)
            for node in shared.topology.nodes():
                yield Sample("headgate_store_breaker", _BREAKER[node.state], (worker, node.name))

    return samples


T = TypeVar("T")


def _layer(store: object, kind: type[T]) -> T | None:
    """The store of a kind among those that wrap each other."""
    return store if store is None or isinstance(store, kind) else _layer(getattr(store, "store", None), kind)


def _region_samples(worker: str, regional: Regional) -> Iterator[Sample]:
    now = regional.clock()
    for peer in regional.gossip.peers():
        age = (now - peer.last_exchange) / SECOND
        yield Sample("headgate_region_exchange_age_seconds", age, (worker, peer.region))
        yield Sample("headgate_region_silent", peer.is_silent, (worker, peer.region))
    for name, borrower in regional.borrowers.items():
        yield Sample("headgate_region_borrowed", borrower.outstanding, (worker, name))


def _lease_samples(worker: str, counts: LeaseCounts) -> Iterator[Sample]:
    yield Sample("headgate_lease_hits_total", counts.hits)
    yield Sample("headgate_lease_grants_total", counts.granted, ("granted",))
    yield Sample("headgate_lease_grants_total", counts.refused, ("refused",))
    yield Sample("headgate_lease_granted_units_total", counts.granted_units)
    yield Sample("headgate_lease_returned_units_total", counts.returned_units)
    yield Sample("headgate_lease_expired_units_total", counts.expired_units)
    yield Sample("headgate_lease_outstanding_units", counts.outstanding_units, (worker,))
    yield Sample("headgate_leased_counters", counts.counters, (worker,))


def control_samples(
    worker: str, runtime: ControlRuntime, identity: Identity, time: Callable[[], float]
) -> Callable[[], Iterator[Sample]]:
    """Samples of the control plane; `time` is the clock of its event loop."""
    subscriber, leader = runtime.subscriber, runtime.leader

    def samples() -> Iterator[Sample]:
        for origin in DocumentOrigin:
            is_it = origin is subscriber.state[RULES].origin
            yield Sample("headgate_rules_source", is_it, (worker, origin.word))
        for followed in Followed:
            yield Sample("headgate_rules_following", followed is subscriber.followed, (worker, followed.value))
        yield Sample("headgate_feed_up", subscriber.confirmed is not None and subscriber.trouble is None, (worker,))
        if subscriber.confirmed is not None:
            unconfirmed = time() - subscriber.confirmed
            yield Sample("headgate_rules_confirmed_age_seconds", unconfirmed, (worker,))
        yield Sample("headgate_announcements_missed_total", subscriber.missed)
        yield Sample("headgate_identity_assumed_total", identity.assumed)
        if identity.records is not None:
            yield Sample("headgate_record_cache_hits_total", identity.records.hits)
            yield Sample("headgate_record_cache_misses_total", identity.records.misses)
            yield Sample("headgate_record_cache_entries", len(identity.records), (worker,))
        for reason, number in subscriber.refused.items():
            yield Sample("headgate_documents_refused_total", number, (reason.value,))
        if leader is not None:
            yield Sample("headgate_database_up", leader.notifier.is_database_up, (worker,))

    return samples


def event_samples(worker: str, flusher: Flusher, exporter: Exporter | None) -> Iterator[Sample]:
    """What was recorded, and what became of it; sinks are known only in the process that exports."""
    emitted, waiting, dropped, left_out = flusher.state()
    sinks = {} if exporter is None else exporter.state()
    yield Sample("headgate_events_emitted_total", emitted)
    yield Sample("headgate_events_dropped_total", dropped)
    yield Sample("headgate_events_left_out_total", left_out)
    yield Sample("headgate_events_waiting", waiting, (worker,))
    for sink, (ledger, error, lag) in sinks.items():
        yield Sample("headgate_sink_stored_total", ledger.stored, sink)
        yield Sample("headgate_sink_refused_total", ledger.refused, sink)
        yield Sample("headgate_sink_dropped_total", ledger.dropped, sink)
        yield Sample("headgate_sink_spooled", ledger.spooled, (worker, *sink))
        yield Sample("headgate_sink_lag_seconds", lag, (worker, *sink))
        yield Sample("headgate_sink_up", error is None, (worker, *sink))
