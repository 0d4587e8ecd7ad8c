"""Every option of a limit and of an application does the same in every framework."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.unit.frameworks.kits import KITS, KITS_MADE

from headgate import InvalidSettings, Request, WrongUse
from headgate.edge.frameworks.limits import RouteLimit
from headgate.edge.frameworks.options import OPTION_NAMES, SETUP_NAMES, options_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.frameworks.kits import Kit

    Kits = type[Kit]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while KITS_MADE:
        KITS_MADE.pop().close()


each = pytest.mark.parametrize("kit", KITS, ids=lambda kit: kit.name)


def _plan(call: Any) -> str | None:  # noqa: ANN401 (of every framework)
    plan: str | None = call.headers.get("x-plan")
    return plan


async def _plan_later(call: Any) -> str | None:  # noqa: ANN401 (as above)
    return _plan(call)


def _who(call: Any) -> str | None:  # noqa: ANN401 (as above)
    who: str | None = call.headers.get("x-user")
    return who


@each
@pytest.mark.parametrize("limits", ["5/day;2/hour", "5/day ; 2/hour", ["5/day", "2/hour"]])
def test_several_limits(kit: Kits, limits: Any) -> None:  # noqa: ANN401 (text or list)
    """Several limits hold together, written as one text or as a list; headers name all of them."""
    app = kit(limits, name="pair")
    first = app.call()
    assert first.headers["RateLimit-Policy"] == '"pair:1d";q=5;w=86400, "pair:1h";q=2;w=3600'
    assert app.codes("/x", "/x") == [200, 429]


@each
@pytest.mark.parametrize("function", [_plan, _plan_later], ids=["sync", "async"])
def test_limits_by_a_function(kit: Kits, function: Any) -> None:  # noqa: ANN401 (as above)
    """A function of the call gives the limit, or None for none; the count stays when the limit changes."""
    app = kit(function)
    assert app.codes("/x", "/x", x_plan="1/day") == [200, 429]
    assert app.codes("/x", "/x", "/x", x_plan="3/day") == [200, 200, 429]
    assert app.codes("/x", x_plan="2/hour;9/day") == [200]
    assert app.codes("/x", "/x") == [200, 200]


@each
def test_what_a_function_gives_is_checked(kit: Kits) -> None:
    """A function that gives no limit is an error of the application: the call is answered 500, not admitted."""
    assert kit(_plan).codes("/x", x_plan="many") == [500]


@each
def test_one_name_is_one_counter(kit: Kits) -> None:
    """Routes whose limits have a name share its counter; without a name each route has its own."""
    assert kit("2/day", name="both").codes("/x", "/y", "/x") == [200, 200, 429]
    assert kit("1/day").codes("/x", "/y", "/x", "/y") == [200, 200, 429, 429]


@each
def test_key_and_per(kit: Kits) -> None:
    """A limit counts for what its function gives, for names, or for both; nothing stands for the address."""
    for app in (kit("1/day", key=_who), kit("1/day", per=_who)):
        assert app.codes("/x", "/x", x_user="ann") == [200, 429]
        assert app.codes("/x", "/x", x_user="bob") == [200, 429]
        assert app.codes("/x", "/x") == [200, 429]
    by_name = kit("1/day", ["user", "method"], setup={"identify": _who})
    assert by_name.codes("/x", "/x", x_user="ann") == [200, 429]
    assert by_name.codes("/x", method="POST", x_user="ann") == [200]
    both = kit("1/day", per="user", key=_plan, setup={"identify": _who})
    assert both.codes("/x", x_user="ann", x_plan="a") + both.codes("/x", x_user="ann", x_plan="b") == [200, 200]
    assert both.codes("/x", x_user="ann", x_plan="a") == [429]
    assert kit("1/day", key=lambda _: 7).codes("/x", "/x") == [200, 429]
    assert kit("1/day", key=lambda _: object()).codes("/x") == [500]


@each
def test_cost(kit: Kits) -> None:
    """A call costs a number, what a function says, or what the view settles afterwards."""
    assert kit("5/day", cost=2).codes("/x", "/x", "/x") == [200, 200, 429]
    by_call = kit("5/day", cost=lambda call: int(call.headers.get("x-size", "1")))
    assert by_call.codes("/x", x_size="4") + by_call.codes("/x", x_size="2") + by_call.codes("/x") == [200, 429, 200]
    settled = kit("5/day", cost=4)
    assert settled.codes("/x", x_settle="1") + settled.codes("/x", "/x") == [200, 200, 429]


@each
def test_the_cost_of_a_limit_is_its_own(kit: Kits) -> None:
    """Rules, and other limits, go on by the cost of the application."""
    rules = [{"name": "wide", "per": ["ip"], "limits": "9/day"}]
    app = kit("10/day", cost=5, setup={"rules": rules, "cost": lambda _: 2})
    assert app.call().headers["RateLimit"].startswith('"wide";r=7')
    assert app.call().headers["X-RateLimit-Remaining"] == "0"


@each
def test_deduct_when(kit: Kits) -> None:
    """A call whose answer does not count is given back; rules count it all the same."""
    rules = [{"name": "wide", "per": ["ip"], "limits": "6/day"}]
    app = kit("2/day", deduct_when=lambda response: response.status_code == 401, setup={"rules": rules})
    assert app.codes("/x", "/x", "/x") == [200, 200, 200]
    assert app.codes("/x", "/x", x_status="401") == [401, 401]
    assert app.codes("/x") == [429]
    assert app.codes("/free", "/free") == [200, 429]


@each
def test_deduct_when_may_wait(kit: Kits) -> None:
    """It may be a coroutine function, and what the view settles counts only if the call does."""

    async def is_counted(response: Any) -> bool:  # noqa: ANN401 (of every framework)
        return bool(response.status_code < 400)

    app = kit("5/day", deduct_when=is_counted)
    assert app.codes("/x", x_status="500", x_settle="5") == [500]
    assert app.codes("/x", x_settle="4") == [200]
    assert app.codes("/x", "/x") == [200, 429]


@each
def test_methods(kit: Kits) -> None:
    """A limit for some methods leaves others alone; one for GET holds for HEAD too, which the same view answers."""
    posted = kit("1/day", methods=["post"])
    assert posted.codes("/x", "/x") == [200, 200]
    assert posted.codes("/x", "/x", method="POST") == [200, 429]
    got = kit("1/day", methods="GET")
    assert got.codes("/x") + got.codes("/x", method="HEAD") == [200, 429]


@each
def test_per_method(kit: Kits) -> None:
    """Each method has a counter of its own."""
    app = kit("1/day", per_method=True)
    assert app.codes("/x", "/x") == [200, 429]
    assert app.codes("/x", "/x", method="POST") == [200, 429]


@each
def test_exempt_when(kit: Kits) -> None:
    """A function exempts calls from a limit, or, for the application, from all limits."""
    app = kit("1/day", exempt_when=lambda call: call.headers.get("x-user") == "root")
    assert app.codes("/x", "/x", "/x", x_user="root") == [200] * 3
    assert app.codes("/x", "/x") == [200, 429]
    rules = [{"name": "one", "limits": "1/day"}]
    everywhere = kit("9/day", setup={"rules": rules, "exempt_when": lambda call: "x-user" in call.headers})
    assert everywhere.codes("/x", "/free", "/x", x_user="root", x_settle="2") == [200] * 3
    assert everywhere.codes("/x", "/free") == [200, 429]


@each
def test_default_limits(kit: Kits) -> None:
    """A default holds for every route without a limit, each by itself, and not for others."""
    app = kit("3/day", setup={"default_limits": "1/day"})
    assert app.codes("/free", "/free") == [200, 429]
    assert app.codes("/x", "/x", "/x", "/x") == [200, 200, 200, 429]
    if kit.name != "litestar":  # it asks no middleware about calls without a route
        assert app.codes("/nowhere", "/nowhere/else") == [404, 429]
    chosen = RouteLimit(options_of("1/day", None, {"methods": ["POST"]}, ""))
    only_posts = kit("3/day", setup={"default_limits": chosen})
    assert only_posts.codes("/free", "/free") + only_posts.codes("/free", "/free", method="POST") == [
        200,
        200,
        200,
        429,
    ]


@each
def test_enabled(kit: Kits, monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit, or all of them, can be switched off in the code or by a setting; views go on as before."""
    assert kit("1/day", enabled=False).codes("/x", "/x", x_settle="3") == [200, 200]
    rules = [{"name": "one", "limits": "1/day"}]
    for setup in ({"enabled": False}, {"enabled": False, "rules": rules}):
        off = kit("1/day", setup=setup)
        assert off.codes("/x", "/x", x_settle="3") == [200, 200]
        assert "RateLimit" not in off.call().headers
    monkeypatch.setenv("HEADGATE_ENABLED", "no")
    assert kit("1/day").codes("/x", "/x") == [200, 200]
    assert kit("1/day", setup={"enabled": True}).codes("/x", "/x") == [200, 429]


@each
def test_on_refused(kit: Kits) -> None:
    """A limit, or the application, has its own answer, with the headers; the limit's comes first."""
    made: list[Any] = []

    def answer(text: str) -> Any:  # noqa: ANN401 (a function of the call)
        def refused(call: Any, verdict: Any) -> Any:  # noqa: ANN401 (of every framework)
            made.append((call.headers.get("x-user"), verdict.retry_after))
            return made_by.response(f"{text} {verdict.policy}", 418)

        return refused

    for setup, options in (
        ({"on_refused": answer("own")}, {}),
        ({"on_refused": answer("no")}, {"on_refused": answer("own")}),
    ):
        made_by = kit("1/day", setup=setup, **options)
        _, refused = made_by.call(), made_by.call(x_user="ann")
        assert (refused.status, refused.text) == (418, "own 1-day")
        assert refused.headers["X-RateLimit-Remaining"] == "0"
        assert int(refused.headers["Retry-After"]) >= 1
        user, wait = made.pop()
        assert user == "ann"
        assert wait > 1


@each
def test_the_reset_header_says_what_is_chosen(kit: Kits, monkeypatch: pytest.MonkeyPatch) -> None:
    """`X-RateLimit-Reset` is when there is more; `full` by option or, without one, by setting is when there is all."""
    monkeypatch.delenv("HEADGATE_RESET_HEADER", raising=False)

    def span(setup: dict[str, str]) -> int:
        """From when there is more to when the first answer's header says that there is."""
        app = kit("10/day", algorithm="token_bucket", cost=5, setup=setup)
        return round(int(app.call().headers["X-RateLimit-Reset"]) - time.time())

    a_token, all_five = range(8_630, 8_643), range(43_190, 43_203)
    assert span({}) in a_token
    assert span({"reset_header": "full"}) in all_five
    monkeypatch.setenv("HEADGATE_RESET_HEADER", "full")
    assert span({}) in all_five
    assert span({"reset_header": "next"}) in a_token


@each
def test_header_names_and_sets(kit: Kits) -> None:
    """Headers come in sets, and under names of the application, on admissions and refusals alike."""
    setup = {"headers": "x-ratelimit", "header_names": {"X-RateLimit-Limit": "X-Quota", "x-ratelimit-reset": "X-When"}}
    app = kit("1/day", setup=setup)
    for answer in (app.call(), app.call()):
        assert answer.headers["X-Quota"] == "1"
        assert int(answer.headers["X-When"]) > 0
        assert not {"X-RateLimit-Limit", "X-RateLimit-Reset", "RateLimit"} & set(answer.headers.keys())
    silent = kit("1/day", setup={"headers": "none"})
    assert not [name for name in silent.call().headers.keys() if "ratelimit" in name.lower()]  # noqa: SIM118 (werkzeug gives pairs)
    assert "Retry-After" in silent.call().headers


@each
def test_outage_and_overload_by_route(kit: Kits) -> None:
    """A limit says what becomes of calls while the store is unavailable; what too much in flight does is said too."""
    setup = {"store": "redis://127.0.0.1:1?deadline_ms=200", "headers": "none"}
    assert kit("1/day", on_store_error="deny", on_overload="deny", setup=setup).codes("/x") == [429]
    assert kit("1/day", on_store_error="allow", setup=setup).codes("/x", "/x") == [200, 200]
    limit = RouteLimit(options_of("1/day", None, {"on_overload": "deny"}, ""))
    assert limit.rule_set is not None
    assert limit.rule_set.rules[0].on_overload == "deny"


@each
def test_peek_and_reset(kit: Kits) -> None:
    """The extension looks at a caller's counters at a route, and forgets them, under rules and limits alike."""
    rules = [{"name": "wide", "per": ["user"], "limits": "3/day"}]
    app = kit("2/day", setup={"rules": rules, "identify": _who})
    ann = Request(user="ann", method="GET", path="/x")
    assert app.codes("/x", "/x", "/x", x_user="ann") == [200, 200, 429]
    seen = app.peek(ann)
    assert (seen.allowed, seen.remaining) == (False, 0)
    assert app.peek(ann._replace(path="/free")).remaining == 0  # of 3 by rule, which would take this call too
    app.reset(ann)
    assert app.peek(ann).remaining == 1
    assert app.codes("/x", "/x", "/x", x_user="ann") == [200, 200, 429]


@each
def test_a_limit_by_functions_is_not_peeked_without_a_call(kit: Kits) -> None:
    """What depends on the call cannot be known without one, and says so."""
    app = kit("1/day", key=_who)
    with pytest.raises(ValueError, match="depends on functions of the call; look it up with the call itself"):
        app.peek(Request(path="/x", method="GET"))


@each
def test_rules_and_limits_are_all_or_nothing(kit: Kits) -> None:
    """A call that one limit refuses counts nowhere, also where functions decide."""
    rules = [{"name": "wide", "per": ["ip"], "limits": "3/day"}]
    app = kit(_plan, cost=lambda _: 1, setup={"rules": rules})
    assert app.codes("/x", "/x", "/x", "/x", x_plan="1/day") == [200, 429, 429, 429]
    assert app.codes("/free", "/free", "/free") == [200, 200, 429]


@each
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cots": 2}, r"there is no option 'cots' in .*; did you mean cost\?"),
        ({"cost": -1}, "cost is a whole number or a function of the call"),
        ({"cost": "2"}, "cost is a whole number or a function of the call"),
        ({"methods": []}, "methods are the names of HTTP methods"),
        ({"methods": ["G T"]}, "methods are the names of HTTP methods"),
        ({"key": "user"}, "key is a function, not 'user'"),
        ({"exempt_when": True}, "exempt_when is a function, not True"),
        ({"enabled": "no"}, "enabled is True or False, not 'no'"),
        ({"per_method": 1}, "per_method is True or False, not 1"),
        ({"per": _who, "key": _who}, "per and key are both functions; keep one of them"),
        ({"per": "colour"}, "is not something to count per"),
        ({"on_overload": "pray"}, "on_overload"),
    ],
)
def test_wrong_options_say_what_is_right(kit: Kits, options: Any, sentence: str) -> None:  # noqa: ANN401 (of a limit)
    """An option that is wrong raises where it is declared."""
    with pytest.raises(ValueError, match=sentence):
        kit("1/day", **options)


@each
@pytest.mark.parametrize(
    ("setup", "sentence"),
    [
        ({"identfy": _who}, r"there is no option 'identfy' in .*; did you mean identify\?"),
        ({"identify": "ann"}, "identify is a function, not 'ann'"),
        ({"header_names": {"X-Rate": "X"}}, "header_names: there is no 'X-Rate' among the headers"),
        ({"header_names": {"RateLimit": "X Y"}}, "is not the name of a header"),
        ({"header_names": {"RateLimit": "RateLimit-Policy"}}, "two headers have the same name"),
        ({"header_names": {"RateLimit": "X"}, "headers": "none"}, "which are none"),
        ({"reset_header": "soon"}, "reset_header must be one of next, full, not 'soon'"),
        ({"default_limits": "many"}, "many"),
    ],
)
def test_wrong_setups_say_what_is_right(kit: Kits, setup: Any, sentence: str) -> None:  # noqa: ANN401 (of an application)
    """An option of the application that is wrong raises before it starts."""
    if kit.name == "django" and "identfy" in setup:
        sentence = "HEADGATE has an unknown setting 'IDENTFY'"
    if kit.name == "django" and setup == {"identify": "ann"}:
        sentence = "IDENTIFY is a function, or its dotted name; 'ann' cannot be imported"
    with pytest.raises(ValueError, match=sentence):
        kit("1/day", setup=setup)


@each
def test_a_missing_limit_shows_the_right_line(kit: Kits) -> None:
    """``@rate_limit`` without its limit is a TypeError that shows the line to write."""
    wrong: Any
    for wrong in (lambda: None, KITS[0], 5, "", []):
        with pytest.raises(TypeError, match=r'write .*"10/minute"|write .*"5/minute"') as raised:
            kit(wrong)
        assert isinstance(raised.value, WrongUse | InvalidSettings)


def test_every_option_is_named_once() -> None:
    """The options that are documented are those that exist."""
    assert len({*OPTION_NAMES, *SETUP_NAMES}) == len(OPTION_NAMES) + len(SETUP_NAMES) - len(
        {"cost", "exempt_when", "enabled", "on_refused"}
    )
