"""The examples in the docstrings of the public modules are Python, and those that need no server run."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import textwrap
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import django
import httpx
import pytest
from django.test import Client, override_settings
from tests.support.applications import scope_of, status
from tests.unit.frameworks import django_project

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

PUBLIC: Final = (
    "headgate",
    "headgate.aiohttp",
    "headgate.asgi",
    "headgate.client",
    "headgate.django",
    "headgate.errors",
    "headgate.fastapi",
    "headgate.flask",
    "headgate.functions",
    "headgate.grpcio",
    "headgate.limits",
    "headgate.litestar",
    "headgate.ports",
    "headgate.rest_framework",
    "headgate.settings",
    "headgate.starlette",
    "headgate.sync",
    "headgate.testing",
    "headgate.wsgi",
)
WITHOUT_EXAMPLE: Final = {"headgate.errors", "headgate.ports", "headgate.settings"}
_INDENT: Final = "    "
_LIMIT: Final = 10
"""Calls a minute, in every example of a framework."""

django.setup()


class Example(NamedTuple):
    """An indented block of a docstring."""

    name: str
    code: str

    @property
    def runs(self) -> bool:
        """Whether it needs no server."""
        return "://" not in self.code or "memory://" in self.code


def _documented(module: ModuleType) -> Iterator[tuple[str, str]]:
    """The docstrings of a module, and of what it defines for others, by name."""
    yield module.__name__, module.__doc__ or ""
    for name, member in inspect.getmembers(module):
        if name.startswith("_") or not getattr(member, "__module__", "").startswith("headgate"):
            continue
        if inspect.isclass(member) or inspect.isfunction(member):
            yield f"{module.__name__}.{name}", inspect.getdoc(member) or ""
        for inner, method in inspect.getmembers(member, inspect.isfunction) if inspect.isclass(member) else ():
            if not inner.startswith("_") and method.__module__.startswith(
                "headgate"
            ):  # not those of a framework's class
                yield f"{module.__name__}.{name}.{inner}", inspect.getdoc(method) or ""


def _blocks(text: str) -> Iterator[str]:
    """Indented blocks, blank lines inside of them included."""
    block: list[str] = []
    for line in [*text.splitlines(), "end"]:
        if line.startswith(_INDENT) or (block and not line.strip()):
            block.append(line)
        elif block:
            yield textwrap.dedent("\n".join(block)).strip() + "\n"
            block = []


def _examples() -> list[Example]:
    return [
        Example(name, code)
        for module in PUBLIC
        for name, text in _documented(importlib.import_module(module))
        for code in _blocks(text)
        if not code.startswith("$ ")  # of a shell
    ]


def _ran(example: Example) -> dict[str, Any]:
    """Run an example, which may `await`, and return its names."""
    code = compile(example.code, example.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"__name__": example.name}

    async def run() -> None:
        made = eval(code, names)  # noqa: S307 (our own documentation)
        if inspect.iscoroutine(made):
            await made

    asyncio.run(run())
    return names


def _asgi(names: dict[str, Any]) -> int:
    return asyncio.run(status(names["app"], scope_of("/search", peer="203.0.113.9")))


def _wsgi(names: dict[str, Any]) -> int:
    with httpx.Client(transport=httpx.WSGITransport(names["app"]), base_url="http://shop") as client:
        return client.get("/search").status_code


def _flask(names: dict[str, Any]) -> int:
    code: int = names["app"].test_client().get("/search").status_code
    return code


_CALLS: Final[dict[str, Callable[[dict[str, Any]], int]]] = {
    "headgate.asgi": _asgi,
    "headgate.fastapi": _asgi,
    "headgate.flask": _flask,
    "headgate.litestar": _asgi,
    "headgate.starlette": _asgi,
    "headgate.wsgi": _wsgi,
}
"""How the application of an example is called."""


def test_every_public_module_shows_how_it_is_used() -> None:
    """Each has an example, but for errors, ports and settings, which are tables of names."""
    assert {example.name for example in _examples()} >= set(PUBLIC) - WITHOUT_EXAMPLE


@pytest.mark.parametrize("example", [pytest.param(each, id=each.name) for each in _examples()])
def test_examples_are_python(example: Example) -> None:
    """Every example can be copied and compiled as it stands."""
    compile(example.code, example.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("example", [pytest.param(each, id=each.name) for each in _examples() if each.runs])
def test_examples_run(example: Example) -> None:
    """An example without a server runs; an application admits ten calls of a minute and refuses the next."""
    names = _ran(example)
    call = _CALLS.get(example.name)
    if call is not None:
        assert [call(names) for _ in range(_LIMIT + 1)] == [200] * _LIMIT + [429]


def test_the_settings_of_the_django_example_limit_a_project() -> None:
    """With the settings of the example a project admits ten calls of a minute and refuses the next."""
    (example,) = (each for each in _examples() if each.name == "headgate.django")
    names = _ran(example)
    with override_settings(
        MIDDLEWARE=names["MIDDLEWARE"], HEADGATE=names["HEADGATE"], ROOT_URLCONF=django_project.__name__
    ):
        client = Client()
        answers = [client.get("/").status_code for _ in range(_LIMIT + 1)]
    assert (answers.count(429), answers[-1]) == (1, 429)
