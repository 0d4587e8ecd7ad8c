"""Limits and exemptions attached to views, and found again when a call comes.

A view is what a framework calls for a route: a function, a class, or a partial of either. Whatever else could be given
a mark would keep it without effect (a blueprint, a router, an application, a method of a class), so it is refused.
"""

from __future__ import annotations

from functools import partial, wraps
from inspect import getattr_static, iscoroutinefunction, isfunction
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from weakref import WeakSet

from headgate.edge.frameworks.admission import CURRENT
from headgate.errors import InvalidSettings, WrongUse, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headgate.edge.frameworks.admission import Admission
    from headgate.edge.frameworks.limits import RouteLimit

F = TypeVar("F", bound="Callable[..., Any]")
G = TypeVar("G")

_LIMITS: Final = "__headgate_limits__"
_EXEMPT: Final = "__headgate_exempt__"
_CLASSES: Final = ("view_class", "cls")
"""Where Flask and Django, and Django's REST framework, keep the class behind a view."""
_OF_SEVERAL_ROUTES: Final = ("routes", "matches", "add_url_rule")
"""What only applications, routers, mounts, routes and blueprints have."""
_checked: WeakSet[type] = WeakSet()


class Changes:
    """How often something was marked: what was found at views before may have changed since."""

    count: ClassVar[int] = 0


def mark(view: F, limit: RouteLimit) -> F:
    """Attach a limit to a view; `InvalidSettings` if it would use the counter of another limit there."""
    check_counters((*limits_at(view), limit))
    _attach(view, _LIMITS, (limit, *getattr(view, _LIMITS, ())))
    return view


def check_counters(limits: Iterable[RouteLimit]) -> None:
    """`InvalidSettings` if two limits of one route would use the same counter."""
    known: set[tuple[str, frozenset[str]]] = set()
    for limit in limits:
        counter = (limit.name, frozenset(limit.counted_per))
        if counter in known:
            msg = f"two limits at one route are named {limit.name!r} and share a counter; rename one, or remove it"
            raise InvalidSettings(msg)
        known.add(counter)


def limited(view: F, limit: RouteLimit, unchecked: str, *, in_any_order: bool = False) -> F:
    """A view with a limit, that raises if the limit was not checked; a class is only marked.

    `unchecked` tells what to do if the call was not checked at all. `in_any_order` marks the view itself too, for
    frameworks whose routes are decorators and may stand below the limit.
    """
    check_is_view(view)
    if isinstance(view, type):
        return mark(view, limit)
    if in_any_order:
        mark(view, limit)

    made: Any
    if iscoroutinefunction(view):

        @wraps(view)
        async def checked(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (the view's own)
            if (found := CURRENT.get()) is None or limit not in found.limits:
                _check(found, unchecked)
            return await view(*args, **kwargs)

        made = checked
    else:

        @wraps(view)
        def checked_too(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 (as above)
            if (found := CURRENT.get()) is None or limit not in found.limits:
                _check(found, unchecked)
            return view(*args, **kwargs)

        made = checked_too
    result: F = made if in_any_order else mark(made, limit)  # `wraps` has copied the mark
    return result


def _check(found: Admission | None, unchecked: str) -> None:
    """Raise if a call comes to a view whose limit was not checked; for a caller that a rule exempts no limit is."""
    if found is None:
        raise WrongUse(unchecked)
    if found.verdict.plan.gate is None:
        msg = "this view's limit is not enforced: another view answers the route; put the limit at that view"
        raise WrongUse(msg)


def exempt(view: F) -> F:
    """Exempt a view from all limits."""
    _attach(view, _EXEMPT, value=True)
    return view


def attach(group: G, limit: RouteLimit | None = None) -> G:
    """Attach a limit, or an exemption, to a group of routes, where the framework finds it for each of them."""
    Changes.count += 1
    if limit is None:
        setattr(group, _EXEMPT, True)
    else:
        setattr(group, _LIMITS, (limit, *getattr(group, _LIMITS, ())))
    return group


def check_is_view(view: object) -> None:
    """`InvalidSettings` if a mark would have no effect: at a blueprint, a router, a route, an application."""
    is_container = not isinstance(view, type) and any(hasattr(view, each) for each in _OF_SEVERAL_ROUTES)
    if not callable(view) or is_container:
        msg = (
            f"{short_repr(view)} is not a view, so a limit or exemption there would have no effect; "
            "put it at each view, or write a rule or skip for the paths, such as /admin/*"
        )
        raise InvalidSettings(msg)


def _attach(view: object, name: str, value: object) -> None:
    check_is_view(view)
    Changes.count += 1
    try:
        setattr(view, name, value)
    except AttributeError:
        msg = f"{short_repr(view)} cannot carry a limit or exemption; put it at the function itself"
        raise InvalidSettings(msg) from None


def limits_at(view: object) -> tuple[RouteLimit, ...]:
    """The limits attached to a view, and to what is behind it."""
    found: tuple[RouteLimit, ...] = getattr(view, _LIMITS, ())
    behind = _behind(view)
    return found if behind is None else tuple(dict.fromkeys((*found, *limits_at(behind))))


def is_exempt(view: object) -> bool:
    """Whether a view is exempt, or what is behind it."""
    if getattr(view, _EXEMPT, False) is True:
        return True
    behind = _behind(view)
    return behind is not None and is_exempt(behind)


def is_marked(thing: object) -> bool:
    """Whether something has a limit or an exemption of its own."""
    return hasattr(thing, _LIMITS) or hasattr(thing, _EXEMPT)


def check_methods(view: object) -> None:
    """`InvalidSettings` if a method of the class behind a view has a mark that the view has not: it has no effect."""
    behind = view if isinstance(view, type) else _behind(view)
    if not isinstance(behind, type):
        if behind is not None:  # the function of a partial
            check_methods(behind)
        return
    if behind in _checked:
        return
    for name, method in _methods(behind):
        limits = getattr(method, _LIMITS, ())
        if not set(limits) <= set(limits_at(view)) or (is_exempt(method) and not is_exempt(view)):
            msg = (
                f"the limit or exemption at {behind.__name__}.{name} would have no effect; "
                "put it at the class, or at a view of its own"
            )
            raise InvalidSettings(msg)
    _checked.add(behind)


def _methods(view_class: type) -> Iterator[tuple[str, object]]:
    for name in dir(view_class):  # what a subclass overrides does not count
        member = getattr_static(view_class, name)
        if isfunction(member) and is_marked(member):
            yield name, member


def _behind(view: object) -> object | None:
    """The function of a partial, or the class that a framework made a view of."""
    if isinstance(view, partial):
        return view.func
    for name in _CLASSES:
        found = getattr(view, name, None)
        if isinstance(found, type):
            return found
    return None
