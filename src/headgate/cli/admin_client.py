"""Asking the admin API: over HTTP where there is an address, else in this process, on the database itself."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from headgate.cli.exchange import call_app, call_http
from headgate.cli.options import settings
from headgate.errors import (
    Conflict,
    Forbidden,
    HeadgateError,
    InvalidFields,
    InvalidRequest,
    InvalidSettings,
    NotFound,
    Problem,
    Stale,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import TypeAlias

    from headgate.cli.exchange import Answer, Application
    from headgate.settings import Settings

    Exchange: TypeAlias = Callable[[str, str, bytes, Mapping[str, str]], Answer]
    """Method, target, body and headers in, the answer out."""

log = logging.getLogger("headgate")

_SECONDS: Final = 300.0  # a rule set of 100,000 rules is checked as a whole
_MAX_PAGE: Final = 1_000
_UNANSWERED: Final = "start one with 'headgate serve', or leave the address out to work on HEADGATE_DATABASE_URL"
_PART: Final = re.compile(r"([^.\[\]]+)|\[([0-9]{1,9})\]")
_KINDS: Final[dict[int, type[HeadgateError]]] = {
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.PRECONDITION_FAILED: Stale,
}


class AdminClient:
    """The admin API, as verbs use it. Whatever is refused is raised, with the API's own sentence."""

    def __init__(self, exchange: Exchange) -> None:
        """`exchange` carries one request there and its answer back."""
        self._exchange = exchange
        self.applied = ""
        """How many processes have the last change, of how many, as in ``2/3``; empty if that was not said."""

    def get(self, path: str, **query: object) -> Any:  # noqa: ANN401 (JSON)
        """What is there."""
        return self._ask("GET", path, query)

    def post(self, path: str, body: object = None, **query: object) -> Any:  # noqa: ANN401 (JSON)
        """Make something, or have something done."""
        return self._ask("POST", path, query, body)

    def put(self, path: str, body: object, version: int | None = None) -> Any:  # noqa: ANN401 (JSON)
        """Replace what is there; with a version, only if it still is what was read."""
        return self._ask("PUT", path, {}, body, version)

    def delete(self, path: str) -> None:
        """Take something away."""
        self._ask("DELETE", path, {})

    def some(self, path: str, most: int, **query: object) -> tuple[list[Any], bool]:
        """The first things of a list, and whether there are more."""
        found: list[Any] = []
        after = None
        while len(found) < most:
            page = self.get(path, **query, limit=min(most - len(found), _MAX_PAGE), after=after)
            found += page["items"]
            after = page["next"]
            if after is None:
                return found, False
        return found, True

    def find(self, path: str) -> Any | None:  # noqa: ANN401 (JSON)
        """What is there; None if there is nothing."""
        try:
            return self.get(path)
        except NotFound:
            return None

    def _ask(
        self, method: str, path: str, query: Mapping[str, object], body: object = None, version: int | None = None
    ) -> Any:  # noqa: ANN401 (JSON)
        given = {name.rstrip("_"): _word(value) for name, value in query.items() if value is not None}
        target = f"{path}?{urlencode(given)}" if given else path
        headers = {"Accept": "application/json"}
        if version is not None:
            headers["If-Match"] = f'"{version}"'
        sent = b""
        if body is not None:
            headers["Content-Type"] = "application/json"
            sent = json.dumps(body).encode()
        answer = self._exchange(method, target, sent, headers)
        self.applied = answer.applied
        return _read(answer)


def at(*parts: object) -> str:
    """The path of something under /v1; names can have any characters, and at least one."""
    if "" in parts:
        msg = "a name or an id is empty; is a variable of your shell not set?"
        raise InvalidRequest(msg)
    return "/".join(("/v1", *(quote(str(part), safe="") for part in parts)))


@contextmanager
def open_client(chosen: Settings, *, decides: bool = False) -> Iterator[AdminClient]:
    """A client as the settings say; it is good inside the ``with``."""
    if chosen.admin_url is not None:
        yield AdminClient(_over_http(chosen.admin_url, chosen.admin_token))
        return
    if chosen.database_url is None and not (chosen.data_dir / "postgres").is_dir():
        msg = "no admin API and no database; set HEADGATE_ADMIN_URL and HEADGATE_ADMIN_TOKEN, or HEADGATE_DATABASE_URL"
        raise InvalidSettings(msg)
    # Imported here: a client of a running service needs none of it.
    from headgate.wiring.commands import admin_application  # noqa: PLC0415 (as said above)

    with _sentences(), asyncio.Runner() as runner:
        application = admin_application(chosen, decides=decides)
        app, token = runner.run(application.__aenter__())
        try:
            yield AdminClient(_in_process(runner, app, token))
        finally:
            runner.run(application.__aexit__(None, None, None))


@contextmanager
def admin(url: str | None, token: str | None, *, decides: bool = False) -> Iterator[AdminClient]:
    """A client by the environment and the options --url and --token; `decides` is for verbs that need a limiter."""
    with open_client(admin_settings(url, token), decides=decides) as client:
        yield client


def admin_settings(url: str | None, token: str | None) -> Settings:
    """The settings of a verb that asks the admin API."""
    try:
        chosen = settings(admin_url=url)
    except InvalidSettings as error:
        raise InvalidSettings(str(error).replace("--admin-url", "--url")) from None
    return chosen if token is None else replace(chosen, admin_token=token)


class _Sentence(logging.Formatter):
    """What is logged, as a command says things; of an exception only what it is."""

    def formatException(self, ei: Any) -> str:  # noqa: ANN401, N802 (as logging has it)
        return f"  {ei[0].__name__}: {ei[1]}"


@contextmanager
def _sentences() -> Iterator[None]:
    """What the application in this process has to say goes to standard error, and never as a traceback."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Sentence("headgate: %(message)s"))
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def _over_http(url: str, token: str | None) -> Exchange:
    if token is None:
        msg = f"{url} wants a token; write --token, or set HEADGATE_ADMIN_TOKEN"
        raise InvalidSettings(msg)
    if not token.isascii() or not token.isprintable():
        msg = "the token has characters that a token cannot have; write --token again, or set HEADGATE_ADMIN_TOKEN"
        raise InvalidSettings(msg)

    def exchange(method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        bearing = {**headers, "Authorization": f"Bearer {token}"}
        return call_http(url, method, target, body, bearing, seconds=_SECONDS, hint=_UNANSWERED)

    return exchange


def _in_process(runner: asyncio.Runner, app: Application, token: str) -> Exchange:
    def exchange(method: str, target: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        return runner.run(call_app(app, method, target, body, {**headers, "Authorization": f"Bearer {token}"}))

    return exchange


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read(answer: Answer) -> Any:  # noqa: ANN401 (JSON)
    """The JSON of a good answer; any other is raised."""
    try:
        data = json.loads(answer.body) if answer.body.strip() else None
    except ValueError:
        msg = f"the answer ({answer.status}) is not one of headgate's admin API; is --url right?"
        raise HeadgateError(msg) from None
    if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
        return data
    raise _refusal(answer.status, data if isinstance(data, dict) else {})


def _refusal(status: int, document: Mapping[str, Any]) -> HeadgateError:
    sentence = str(document.get("message") or document.get("detail") or f"the admin API answered {status}")
    problems = document.get("problems") or ()
    if problems:
        return InvalidFields([_problem(str(each.get("field") or ""), str(each["message"])) for each in problems])
    if status == HTTPStatus.UNAUTHORIZED:
        return HeadgateError(f"{sentence} (--token or HEADGATE_ADMIN_TOKEN)")
    return _KINDS.get(status, HeadgateError)(sentence)


def _problem(field: str, message: str) -> Problem:
    """A problem as it was before it was answered: ``rules[2].limits`` is a path again."""
    parts = _PART.findall(field)
    path = tuple(int(number) if number else name for name, number in parts)
    problem = Problem(path, message)
    # What is written in an unusual way cannot be taken apart for sure, and is passed on as it is.
    return problem if problem.field == field else Problem((), f"{field}: {message}")
