"""What people write who come from other libraries, or for the first time: errors that show what to write instead."""

from __future__ import annotations

from typing import Any

import pytest
from fastapi import FastAPI

from headgate import functions
from headgate.errors import WrongUse
from headgate.fastapi import rate_limit, setup


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("key_func", "key"), ("error_message", "message"), ("scope", "name"), ("on_breach", "on_refused")],
)
def test_names_of_other_libraries_show_ours(theirs: str, ours: str) -> None:
    """An option by the name that another library has for it is answered with our name."""
    options: Any = {theirs: "x"}
    with pytest.raises(WrongUse, match=rf"'{theirs}' .* did you mean {ours}\?"):
        rate_limit("1/day", **options)


@pytest.mark.parametrize("option", ["key", "cost", "exempt_when"])
def test_functions_without_parameters_are_refused(option: str) -> None:
    """A function that cannot take the call is refused where it is written, not when a call comes."""
    options: Any = {option: lambda: 1}
    with pytest.raises(WrongUse, match=f"{option} is a function of the call, and this one takes nothing"):
        rate_limit("1/day", **options)
    functions.RateLimiter().limit("1/day", **options)  # there it gets the arguments of the function, which may be none
    rate_limit("1/day", key=dict.get)  # a builtin that does not say what it takes


def test_a_second_setup_is_refused() -> None:
    """An application that is set up twice would count every call twice."""
    app = FastAPI()
    setup(app, default_limits="1/day")
    with pytest.raises(WrongUse, match="counted twice"):
        setup(app, default_limits="1/day")


def test_one_proxy_needs_no_list() -> None:
    """A single range of proxies may be a text, as a single path to skip may be."""
    setup(FastAPI(), default_limits="1/day", trusted_proxies="10.0.0.0/8", skip="/health")
