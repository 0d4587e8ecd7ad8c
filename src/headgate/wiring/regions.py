"""The regions that a process knows, and a store with those of the other regions beside it."""

from __future__ import annotations

from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from headgate.adapters.clock import monotonic_ns, wall_clock
from headgate.errors import InvalidSettings
from headgate.setting_values import TextFromFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headgate.adapters.redis import RedisStore
    from headgate.core.units import Micros
    from headgate.ports import SharedStore

_DEADLINE_MS: Final = 1_000
_PROBES_PER_INTERVAL: Final = 4


class Regions(NamedTuple):
    """The region of this process, and the stores of the others."""

    name: str | None = None
    urls: Mapping[str, str] = MappingProxyType({})
    gossip_seconds: float = 1.0

    @property
    def others(self) -> dict[str, str]:
        """The addresses of the other regions' stores; that of this region is the store's own."""
        return {name: url for name, url in self.urls.items() if name != self.name}


NO_REGIONS: Final = Regions()


def regional(store: SharedStore, regions: Regions, clock: Callable[[], Micros]) -> SharedStore:
    """The same store with those of the other regions beside it."""
    if regions.name is None:
        return store
    from headgate.dataplane.regional import Regional  # noqa: PLC0415 (most programs are in one region)

    others = {name: _far_store(name, url, clock, regions.gossip_seconds) for name, url in regions.others.items()}
    monotonic = _monotonic if clock is wall_clock else clock  # in tests it is the same
    return Regional(store, regions.name, others, monotonic, regions.gossip_seconds, wall_clock=clock)


def _monotonic() -> Micros:
    return monotonic_ns() // 1_000


def _far_store(name: str, url: str, clock: Callable[[], Micros], gossip_seconds: float) -> RedisStore:
    """The store of another region, which answers later than one nearby; what its address says holds.

    While it is unavailable it is probed several times in an interval, so that counts are exchanged soon afterwards.
    """
    from headgate.adapters.redis import store_at  # noqa: PLC0415 (as above)

    patient = partial(_patient, max(1, min(_DEADLINE_MS, int(1_000 * gossip_seconds / _PROBES_PER_INTERVAL))))
    try:
        address = url.changed(patient) if isinstance(url, TextFromFile) else patient(url)
        return store_at(address, None if clock is wall_clock else clock)
    except InvalidSettings as error:
        msg = f"the store of region {name}: {error}"
        raise InvalidSettings(msg) from error


def _patient(probe_ms: int, url: str) -> str:
    usual = {"deadline_ms": _DEADLINE_MS, "probe_ms": probe_ms}
    more = "&".join(f"{name}={value}" for name, value in usual.items() if f"{name}=" not in url)
    return f"{url}{'&' if '?' in url else '?'}{more}" if more else url
