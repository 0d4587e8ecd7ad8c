"""What can be said about a limit at a route, and about a whole application: the same words in every framework.

A framework translates (its request, its response); everything else about an option is here and in `limits`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, isawaitable, iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from headgate.core.meter import check_cost
from headgate.errors import InvalidRequest, InvalidSettings, WrongUse, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headgate.edge.frameworks.limits import RouteLimit

Function: TypeAlias = Callable[..., Any]
Limits: TypeAlias = str | Sequence[str] | Function
Per: TypeAlias = str | Sequence[str] | Function | None
_METHOD: Final = re.compile(r"[A-Za-z]{1,32}")
FUNCTIONS: Final = ("limits", "key", "cost", "exempt_when", "on_refused")
"""Options that may be functions of the call."""


class LimitOptions(TypedDict, total=False):
    """What a limit may say beside its limits and `per`."""

    key: Function | None
    cost: int | Function | None
    methods: str | Iterable[str] | None
    per_method: bool
    exempt_when: Function | None
    deduct_when: Function | None
    enabled: bool
    on_refused: Function | None
    name: str | None
    algorithm: str | None
    action: str | None
    max_delay: str | None
    on_store_error: str | None
    on_overload: str | None
    status: int | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Options:
    """All that a limit says."""

    limits: tuple[str, ...] | Function
    per: tuple[str, ...]
    key: Function | None = None
    cost: int | Function | None = None
    methods: frozenset[str] | None = None
    per_method: bool = False
    exempt_when: Function | None = None
    deduct_when: Function | None = None
    enabled: bool = True
    on_refused: Function | None = None
    name: str | None = None
    algorithm: str | None = None
    action: str | None = None
    max_delay: str | None = None
    on_store_error: str | None = None
    on_overload: str | None = None
    status: int | None = None
    message: str | None = None

    @property
    def is_conditional(self) -> bool:
        """Whether a call decides if the limit holds, how much it is, for whom it counts, or what it takes."""
        return (
            not self.enabled
            or self.methods is not None
            or self.cost is not None
            or callable(self.limits)
            or self.key is not None
            or self.exempt_when is not None
        )

    @property
    def has_functions(self) -> bool:
        """Whether functions of the call decide something before it is admitted."""
        return any(callable(getattr(self, name)) for name in FUNCTIONS if name != "on_refused")

    def via(self, translate: Callable[[Function], Function]) -> Options:
        """The same options, with each function of the call behind a translation."""
        own: dict[str, Any] = {name: translate(value) for name in FUNCTIONS if callable(value := getattr(self, name))}
        return replace(self, **own)

    def for_threads(self) -> Options:
        """The same options for applications without an event loop."""
        deduct_when = self.deduct_when
        return replace(self.via(blocking), deduct_when=None if deduct_when is None else blocking(deduct_when))

    def without_effect(self, names: Iterable[str], why: str) -> None:
        """Refuse options that a framework cannot give an effect."""
        for name in names:
            if getattr(self, name) not in {None, False}:
                msg = f"{name} has no effect here: {why}; leave it out"
                raise InvalidSettings(msg)


def options_of(limits: Limits, per: Per, given: LimitOptions, right: str, *, gets_the_call: bool = True) -> Options:
    """Options as people write them; `right` is the line that is shown to those who write something else.

    `gets_the_call` says that functions get one argument, the call, so that one without parameters is refused.
    """
    _check_names(given, LimitOptions, right)
    if callable(limits):
        _check_is_of_a_call(limits, right)
    elif not isinstance(limits, str | Sequence) or not limits:
        msg = (
            f"limits are texts such as '10/minute', or a function of the call, not {short_repr(limits)}; write {right}"
        )
        raise WrongUse(msg)
    else:
        limits = _split(limits)
    key = given.get("key")
    if callable(per):
        if key is not None:
            msg = "per and key are both functions; keep one of them"
            raise InvalidSettings(msg)
        per, key = None, per
    if per is None:
        per = () if key is not None else ("user",)
    counted = (per,) if isinstance(per, str) else tuple(per)
    _check_functions({**given, "key": key}, gets_the_call=gets_the_call)
    rest: dict[str, Any] = {**given, "key": key, "cost": _cost(given.get("cost")), "methods": _methods(given)}
    for name in ("per_method", "enabled"):
        if not isinstance(rest.get(name, False), bool):
            msg = f"{name} is True or False, not {short_repr(rest[name])}"
            raise InvalidSettings(msg)
    return Options(limits, counted, **rest)


def _check_functions(given: Mapping[str, Any], *, gets_the_call: bool) -> None:
    for name in ("key", "exempt_when", "deduct_when", "on_refused"):
        if (value := given.get(name)) is not None and not callable(value):
            msg = f"{name} is a function, not {short_repr(value)}"
            raise InvalidSettings(msg)
    for name in ("key", "cost", "exempt_when") if gets_the_call else ():
        if callable(value := given.get(name)) and not _takes_something(value):
            msg = f"{name} is a function of the call, and this one takes nothing; write {name}=lambda request: …"
            raise WrongUse(msg)


def _split(limits: str | Sequence[str]) -> tuple[str, ...]:
    """``"2/second;3/minute"``, or a list of such texts."""
    several = [limits] if isinstance(limits, str) else limits
    return tuple(part.strip() for text in several for part in str(text).split(";"))


def _cost(given: object) -> int | Function | None:
    if given is None or callable(given):
        return given
    try:
        return check_cost(given)
    except InvalidRequest as error:
        msg = f"cost is a whole number or a function of the call: {error}"
        raise InvalidSettings(msg) from None


def _methods(given: LimitOptions) -> frozenset[str] | None:
    methods = given.get("methods")
    if methods is None:
        return None
    words = [methods] if isinstance(methods, str) else list(methods)
    if not words or not all(isinstance(word, str) and _METHOD.fullmatch(word) for word in words):
        msg = f"methods are the names of HTTP methods, such as ['POST'], not {short_repr(methods)}"
        raise InvalidSettings(msg)
    chosen = {word.upper() for word in words}
    # Frameworks answer HEAD by the views for GET, so a limit on GET alone could be passed by.
    return frozenset(chosen | {"HEAD"} if "GET" in chosen else chosen)


class SetupOptions(TypedDict, total=False):
    """What an application may say beside its store and rules."""

    identify: Function | None
    cost: Function | None
    skip: str | Iterable[str]
    headers: str
    header_names: Mapping[str, str] | None
    reset_header: str | None
    trusted_proxies: str | Iterable[str] | None
    database_url: str | None
    default_limits: str | Sequence[str] | RouteLimit | None
    exempt_when: Function | None
    enabled: bool | None
    on_refused: Function | None


@dataclass(frozen=True, slots=True)
class Setup:
    """All that an application says."""

    identify: Function | None = None
    cost: Function | None = None
    skip: tuple[str, ...] = ()
    headers: str = "all"
    header_names: Mapping[str, str] | None = None
    reset_header: str | None = None
    trusted_proxies: tuple[str, ...] | None = None
    database_url: str | None = None
    default_limits: str | Sequence[str] | RouteLimit | None = None
    exempt_when: Function | None = None
    enabled: bool | None = None
    on_refused: Function | None = None

    def via(self, translate: Callable[[Function], Function]) -> Setup:
        """The same, with each function of the call behind a translation."""
        names = ("identify", "cost", "exempt_when", "on_refused")
        own: dict[str, Any] = {name: translate(value) for name in names if (value := getattr(self, name)) is not None}
        return replace(self, **own)


def setup_of(given: SetupOptions, right: str) -> Setup:
    """Options of an application as people write them."""
    _check_names(given, SetupOptions, right)
    for name in ("identify", "cost", "exempt_when", "on_refused"):
        if (value := given.get(name)) is not None and not callable(value):
            msg = f"{name} is a function, not {short_repr(value)}"
            raise InvalidSettings(msg)
    rest: dict[str, Any] = dict(given)
    for name in ("skip", "trusted_proxies"):
        if (value := rest.get(name)) is not None:
            rest[name] = (value,) if isinstance(value, str) else tuple(value)
    return Setup(**rest)


OPTION_NAMES: Final = ("limits", "per", *LimitOptions.__annotations__)
SETUP_NAMES: Final = tuple(each.name for each in fields(Setup))


_OF_OTHERS: Final = {
    "callback": "on_refused",
    "error_message": "message",
    "group": "name",
    "identifier": "key",
    "key_func": "key",
    "method": "methods",
    "on_breach": "on_refused",
    "scope": "name",
}
"""What slowapi, flask-limiter, django-ratelimit and fastapi-limiter call our options."""


def _check_names(given: Mapping[str, Any], known: Any, right: str) -> None:  # noqa: ANN401 (a TypedDict)
    unknown = next((name for name in given if name not in known.__annotations__), None)
    if unknown is not None:
        here = _OF_OTHERS.get(unknown)
        close = [here] if here in known.__annotations__ else get_close_matches(unknown, known.__annotations__, 1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known.__annotations__)}"
        msg = f"there is no option {short_repr(unknown)} in {right}; {hint}"
        raise WrongUse(msg)


def _check_is_of_a_call(function: Function, right: str) -> None:
    """A function in place of limits takes the call; one that takes nothing is a view without a limit."""
    if isinstance(function, type) or not _takes_something(function):
        msg = f"the limit is missing at {short_repr(getattr(function, '__name__', function))}; write {right}"
        raise WrongUse(msg)


def _takes_something(function: Function) -> bool:
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # of a builtin, which does not say
        return True
    return any(each.kind is not Parameter.KEYWORD_ONLY for each in parameters)


async def settled(value: Any) -> Any:  # noqa: ANN401 (what a function of the application gave)
    """What a function gave, be it a coroutine or not."""
    return await value if isawaitable(value) else value


def blocking(function: Function) -> Function:
    """A function for threads: a coroutine function is run to its end, on an event loop of its own.

    On an event loop (plain functions of `grpc.aio` are decided there) it gives its coroutine; see `settled`.
    """
    if not iscoroutinefunction(function):
        return function

    @wraps(function)
    def ran(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the function's own)
        made = function(*args, **kwargs)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(made)
        return made

    return ran
