"""What WSGI, Flask and Django share: a check in the thread that answers the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from headgate.adapters.clock import sleep
from headgate.dataplane.without_waiting import run
from headgate.edge.frameworks.admission import Admission
from headgate.edge.frameworks.calls import call_of_wsgi, described, path_of
from headgate.edge.frameworks.workers import ONE_EACH, is_one_of_several
from headgate.edge.problems import Unanswerable
from headgate.errors import InvalidRequest, InvalidSettings, NoRules, Overloaded, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from headgate.core.request import Request
    from headgate.core.verdict import Verdict
    from headgate.dataplane.identity import Identity
    from headgate.dataplane.proxies import Proxies
    from headgate.edge.frameworks.answers import Answer
    from headgate.edge.frameworks.blocking_identity import BlockingIdentity
    from headgate.edge.frameworks.calls import Who
    from headgate.edge.frameworks.gate import Gate
    from headgate.edge.frameworks.routes import Place
    from headgate.ports import CounterStore


class Checking(Protocol):
    """The part of `headgate.sync.Limiter` that is needed here."""

    def check(self, request: Request, cost: int | None = None) -> Verdict:
        """Decide a request, and count it if every rule admits it."""


class ThreadGate:
    """Asks about calls, and holds their threads back where a rule says so."""

    def __init__(
        self,
        gate: Gate[Checking],
        store: CounterStore,
        identity: Identity | BlockingIdentity,
        proxies: Proxies,
        *,
        local: bool,
    ) -> None:
        """`store` has the counters; `local` says that they are in this process. `identity` never really waits."""
        self.gate = gate
        self._store = store
        self._identity = identity
        self._proxies = proxies
        self._local = local

    def ask(
        self,
        environ: Mapping[str, Any],
        path: str,
        place: Place,
        identify: Callable[[], Who] | None = None,
        cost: Callable[[], int | None] | None = None,
    ) -> Admission | Answer | None:
        """The admission of a call, held back as long as it has to be; a refusal; or None if nothing limits it."""
        if self._local and is_one_of_several(environ):
            raise InvalidSettings(ONE_EACH)
        try:
            return self._asked(environ, path_of(path), place, identify, cost)
        except (InvalidRequest, NoRules, Overloaded, StoreError, Unanswerable) as error:
            return self.gate.problem(error)

    def _asked(
        self,
        environ: Mapping[str, Any],
        path: str,
        place: Place,
        identify: Callable[[], Who] | None,
        cost: Callable[[], int | None] | None,
    ) -> Admission | Answer | None:
        if place.exempt or path in self.gate.skipping:
            return None
        call = call_of_wsgi(environ, path, self._identity.api_key_header)
        if identify is None:
            request = run(self._identity.called(call))._replace(route=place.template)
        else:
            address = self._proxies.address(call.peer, call.forwarded_for, call.forwarded)
            request = run(self._identity.stated(described(identify(), call, address, place.template)))
        verdict = self.gate.limiter_for(place.limits).check(request, None if cost is None else cost())
        if not verdict.allowed:
            return self.gate.refusal(verdict)
        if verdict.delay:
            sleep(verdict.delay)
        return Admission(request, verdict, place.limits)

    def close(self, admission: Admission) -> None:
        """Book what is owed, now that the answer has been sent."""
        if admission.is_owed:
            run(admission.close(self._store))
