"""How commands ask the admin API: what they send, and what becomes of each answer."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import threading
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from headgate.cli import commands
from headgate.cli.admin_client import admin, at
from headgate.cli.exchange import call_app
from headgate.errors import InvalidFields
from headgate.wiring import commands as wired

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, MutableMapping

    from headgate.settings import Settings

TIER = {
    "name": "pro",
    "display_name": None,
    "price": 49.0,
    "limits": {"search": ["5/minute"]},
    "is_default": False,
    "version": 3,
    "created_at": "2030-01-31T12:00:00Z",
    "updated_at": "2030-01-31T12:00:00Z",
}


class Asked(NamedTuple):
    line: str
    headers: dict[str, str]
    body: Any


class Api:
    """A server that answers as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answers: dict[str, tuple[int, bytes]] = {}
        api = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                line = f"{self.command} {self.path}"
                api.asked.append(Asked(line, dict(self.headers), json.loads(body) if body else None))
                status, text = api.answers.get(line, (404, b'{"message": "there is no such thing"}'))
                self.send_response(status)
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 (as http.server calls them)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, line: str, data: object, status: int = 200) -> None:
        self.answers[line] = (status, data if isinstance(data, bytes) else json.dumps(data).encode())


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    """An admin API that commands ask, with the token `secret`."""
    api = Api()
    monkeypatch.setenv("HEADGATE_ADMIN_URL", api.url)
    monkeypatch.setenv("HEADGATE_ADMIN_TOKEN", "secret")
    with api.server:
        serving = threading.Thread(target=api.server.serve_forever, args=(0.01,))
        serving.start()
        yield api
        api.server.shutdown()
        serving.join()


def test_a_command_sends_its_token_and_prints_what_comes_back(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """The token from the environment is sent as a bearer token; with --json the answer comes out as it is."""
    api.answer("GET /v1/tiers/pro", TIER)
    assert commands.run(["tiers", "show", "pro", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == TIER
    assert api.asked[0].headers["Authorization"] == "Bearer secret"


def test_options_come_before_the_environment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """--url and --token replace what the environment says."""
    monkeypatch.setenv("HEADGATE_ADMIN_URL", "http://127.0.0.1:1")
    api.answer("GET /v1/tiers/pro", TIER)
    assert commands.run(["tiers", "show", "pro", "--url", api.url, "--token", "other"]) == 0
    assert api.asked[0].headers["Authorization"] == "Bearer other"


def test_what_is_there_is_changed_only_if_it_is_still_what_was_read(api: Api) -> None:
    """`set` on something that exists sends all of it with what was said changed, for the version it read."""
    api.answer("GET /v1/tiers/pro", TIER)
    api.answer("PUT /v1/tiers/pro", TIER)
    assert commands.run(["tiers", "set", "pro", "--price", "59", "--limit", "api=9/day", "--drop-limit", "search"]) == 0
    asked = api.asked[1]
    assert asked.headers["If-Match"] == '"3"'
    assert asked.body == {"display_name": None, "price": 59, "limits": {"api": ["9/day"]}, "is_default": False}


def test_what_is_not_there_is_made(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """`set` on something that does not exist makes it."""
    api.answer("POST /v1/tiers", TIER, 201)
    assert commands.run(["tiers", "set", "pro", "--default"]) == 0
    assert api.asked[1].body["is_default"] is True
    assert capsys.readouterr().out.startswith("created  tier pro")


def test_names_can_have_any_characters() -> None:
    """A slash or a question mark in an id stays part of the id."""
    assert at("users", "a/b?c d%", "quota") == "/v1/users/a%2Fb%3Fc%20d%25/quota"


def test_lists_are_fetched_page_by_page(api: Api) -> None:
    """As many pages are asked for as it takes, and none more."""
    api.answer("GET /v1/users?limit=3", {"items": [1, 2], "next": "x y"})
    api.answer("GET /v1/users?limit=1&after=x+y", {"items": [3], "next": "z"})
    api.answer("GET /v1/users?tier=a&limit=2", {"items": [1, 2], "next": None})
    with admin(None, None) as client:
        assert client.some(at("users"), 3) == ([1, 2, 3], True)
        assert client.some(at("users"), 2, tier="a") == ([1, 2], False)


@pytest.mark.parametrize(
    ("status", "document", "said"),
    [
        (401, {"message": "the token is not known"}, "the token is not known (--token or HEADGATE_ADMIN_TOKEN)"),
        (403, {"message": "this needs the role admin"}, "this needs the role admin"),
        (404, {"message": "there is no tier 'pro'"}, "there is no tier 'pro'"),
        (409, {"message": "users are on it"}, "users are on it"),
        (412, {"message": "it has changed since it was read"}, "it has changed since it was read"),
        (503, {"detail": "the database is out of reach"}, "the database is out of reach"),
        (500, {}, "the admin API answered 500"),
        (500, [], "the admin API answered 500"),
        (
            422,
            {"message": "m", "problems": [{"field": "price", "message": "expected a number"}]},
            "price: expected a number",
        ),
        (
            422,
            {"problems": [{"field": "a", "message": "one"}, {"field": "", "message": "two"}]},
            "the input is refused, for 2 problems:\n  a: one\n  two",
        ),
    ],
)
def test_every_refusal_is_a_sentence(
    status: int, document: object, said: str, api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever the API refuses ends a command with 1 and the API's own words on standard error."""
    api.answer("DELETE /v1/tiers/pro", document, status)
    assert commands.run(["tiers", "delete", "pro"]) == 1
    answered = capsys.readouterr()
    assert answered.err == f"headgate: {said}\n"
    assert answered.out == ""


def test_problems_keep_their_places(api: Api) -> None:
    """The place of a problem can be found again in what was sent, unless it is written in an unusual way."""
    problems = [
        {"field": "rules[2].match.methods", "message": "m"},
        {"field": "[0].tier", "message": "m"},
        {"field": "tiers['a b\\n']", "message": "m"},
    ]
    api.answer("POST /v1/ruleset/plan", {"problems": problems}, 422)
    with admin(None, None) as client, pytest.raises(InvalidFields) as error:
        client.post(at("ruleset", "plan"))
    assert [problem.path for problem in error.value.problems] == [("rules", 2, "match", "methods"), (0, "tier"), ()]
    assert str(error.value.problems[2]) == "tiers['a b\\n']: m"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {},
            "no admin API and no database; set HEADGATE_ADMIN_URL and HEADGATE_ADMIN_TOKEN, or HEADGATE_DATABASE_URL",
        ),
        ({"ADMIN_URL": "http://127.0.0.1:1"}, "http://127.0.0.1:1 wants a token; write --token"),
        (
            {"ADMIN_URL": "http://127.0.0.1:1", "ADMIN_TOKEN": "a\nb"},
            "the token has characters that a token cannot have",
        ),
        ({"ADMIN_URL": "http://127.0.0.1:1", "ADMIN_TOKEN": "a"}, "no answer from http://127.0.0.1:1 (Connection"),
    ],
)
def test_a_missing_server_or_token_gets_a_sentence(
    settings: dict[str, str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without an address, a token or a server that listens a command says what is missing."""
    monkeypatch.chdir(tmp_path)  # where no service keeps its data
    for name, value in settings.items():
        monkeypatch.setenv(f"HEADGATE_{name}", value)
    assert commands.run(["tiers", "list"]) == 1
    assert said in capsys.readouterr().err


def test_a_malformed_address_names_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    """What is wrong with --url is said of --url."""
    assert commands.run(["tiers", "list", "--url", "nonsense"]) == 1
    assert capsys.readouterr().err.startswith("headgate: --url is 'nonsense'; write an address")


def test_another_program_that_answers_is_told_apart(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """An address where something else answers is named as such."""
    api.answer("GET /v1/tiers/pro", b"<html>")
    assert commands.run(["tiers", "show", "pro"]) == 1
    assert "is not one of headgate's admin API; is --url right?" in capsys.readouterr().err


def test_another_limiters_configuration_is_written_as_rules(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`rules import` sends what the file says, writes the rules that come back, and tells what was left out."""
    file = tmp_path / "envoy.yaml"
    file.write_text("domain: x\n")
    imported = {"rule_set": {"rules": [{"name": "a", "limits": "1/day"}]}, "notes": ["shadow mode was left out"]}
    api.answer("POST /v1/ruleset/import?form=tiers", imported)
    assert commands.run(["rules", "import", str(file), "--form", "tiers"]) == 0
    said = capsys.readouterr()
    assert api.asked[0].body == {"domain": "x"}
    assert said.out == "rules:\n  - name: a\n    limits: 1/day\n"
    assert said.err == f"headgate: {file} has settings that were not carried over:\n  shadow mode was left out\n"


def test_a_configuration_is_imported_without_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without an address `rules import` converts by itself: who comes from another limiter has no service yet."""
    monkeypatch.delenv("HEADGATE_ADMIN_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    limit = "{unit: minute, requests_per_unit: 60}"
    (tmp_path / "envoy.yaml").write_text(f"domain: web\ndescriptors: [{{key: remote_address, rate_limit: {limit}}}]\n")
    assert commands.run(["rules", "import", "envoy.yaml"]) == 0
    said = capsys.readouterr()
    assert "limits: 60/minute" in said.out
    assert "envoy.yaml has settings that were not carried over" in said.err
    assert commands.run(["rules", "import", "envoy.yaml", "--form", "nginx"]) == 1
    assert "--form is one of envoy, tiers, not 'nginx'" in capsys.readouterr().err
    (tmp_path / "tiers.json").write_text('{"rules": 5}')
    assert commands.run(["rules", "import", "tiers.json", "--form", "tiers"]) == 1
    assert "rules: expected a list" in capsys.readouterr().err


def test_results_go_to_a_file(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With --output the result is written there; where that cannot be, a sentence says why."""
    api.answer("GET /v1/ruleset/schema", {"type": "object"})
    assert commands.run(["rules", "schema", "-o", str(tmp_path / "schema.json")]) == 0
    assert json.loads((tmp_path / "schema.json").read_text()) == {"type": "object"}
    assert commands.run(["rules", "schema", "--output", str(tmp_path / "no" / "schema.json")]) == 1
    assert "cannot be written: No such file or directory" in capsys.readouterr().err
    assert commands.run(["rules", "schema", "-o", "/dev/null"]) == 0
    assert commands.run(["rules", "schema", "-o", "/dev/full"]) == 1  # reading it has no end
    assert "/dev/full cannot be written: No space left on device" in capsys.readouterr().err


def test_a_limit_that_a_tier_has_not_cannot_be_dropped(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    """`tiers set --drop-limit` names a limit of the tier; a slip of the pen neither passes nor makes a tier."""
    tier: dict[str, Any] = {
        "name": "pro",
        "display_name": None,
        "price": 0,
        "limits": {},
        "is_default": False,
        "version": 1,
    }
    api.answer("GET /v1/tiers/pro", tier)
    assert commands.run(["tiers", "set", "pro", "--drop-limit", "serach"]) == 1
    assert "--drop-limit: the tier has no limit 'serach'" in capsys.readouterr().err
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("typed", "options", "code", "is_applied"), [("n", [], 1, False), ("y", [], 0, True), ("", ["--yes"], 0, True)]
)
def test_a_person_at_a_terminal_is_asked_first(
    typed: str,
    options: list[str],
    code: int,
    *,
    is_applied: bool,
    api: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`rules apply` shows the difference and waits for a yes, unless it was given with the command."""
    file = tmp_path / "rules.yaml"
    file.write_text("rules: []")
    difference = {"lines": ["+ rule a"], "unchanged": 0}
    (tmp_path / ".git").mkdir()
    api.answer("POST /v1/ruleset/plan?owner=rules.yaml&delete=false", difference)
    api.answer("POST /v1/ruleset/apply?owner=rules.yaml", difference)
    terminal = io.StringIO(f"{typed}\n")
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    assert commands.run(["rules", "apply", str(file), *options]) == code
    assert (len(api.asked) == 2) is is_applied


def test_programs_get_the_difference_that_was_made(
    api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --json nothing but the outcome is printed; files in one folder are owned by its path."""
    folder = tmp_path / "limits"
    folder.mkdir()
    (tmp_path / ".git").mkdir()
    files = [str(folder / name) for name in ("a.yaml", "b.yaml")]
    for file in files:
        Path(file).write_text("rules: []")
    api.answer("POST /v1/ruleset/sync?owner=limits%2F&take_over=true", {"lines": []})
    assert commands.run(["rules", "sync", *files, "--take-over", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"lines": []}


async def _application(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401 (ASGI)
    """Answers what it was asked, in two parts."""
    message = await receive()
    assert (await receive())["type"] == "http.disconnect"
    headers = {name.decode(): value.decode() for name, value in scope["headers"]}
    seen = [scope["method"], scope["path"], scope["raw_path"].decode(), scope["query_string"].decode()]
    text = json.dumps([*seen, headers["authorization"], message["body"].decode()]).encode()
    await send({"type": "http.response.start", "status": 202, "headers": []})
    await send({"type": "http.response.body", "body": text[:5], "more_body": True})
    await send({"type": "http.response.body", "body": text[5:]})


def test_an_application_is_called_as_a_server_would() -> None:
    """A path arrives decoded and as it was sent, with query, headers and body; an answer in parts is put together."""
    answer = asyncio.run(call_app(_application, "PUT", "/v1/a%2Fb?x=1", b"body", {"Authorization": "Bearer t"}))
    assert answer.status == 202
    assert json.loads(answer.body) == ["PUT", "/v1/a/b", "/v1/a%2Fb", "x=1", "Bearer t", "body"]


def test_without_an_address_the_api_runs_in_this_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a database and no address the application is built, asked, and put away, even if a command fails.

    What it logs comes without tracebacks.
    """
    events: list[str] = []

    @asynccontextmanager
    async def admin_application(chosen: Settings, *, decides: bool) -> AsyncIterator[tuple[Any, str]]:
        events.append(f"opened on {chosen.database_url}, deciding: {decides}")
        yield _application, "own"
        events.append("closed")

    monkeypatch.setattr(wired, "admin_application", admin_application)
    monkeypatch.setenv("HEADGATE_DATABASE_URL", "postgresql://somewhere")
    with admin(None, None) as client:
        assert client.get("/v1/me") == ["GET", "/v1/me", "/v1/me", "", "Bearer own", ""]
        logging.getLogger("headgate").error("that failed", exc_info=ZeroDivisionError())
    with pytest.raises(ZeroDivisionError), admin(None, None):
        raise ZeroDivisionError
    assert capsys.readouterr().err == "headgate: that failed\n  ZeroDivisionError: \n"
    assert events == ["opened on postgresql://somewhere, deciding: False", "closed"] * 2
