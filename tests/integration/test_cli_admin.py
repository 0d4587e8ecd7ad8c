"""The commands of the control plane, on the real admin API and a real PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest
from tests.support.addresses import free_address
from tests.support.admin import BOOTSTRAP, opened

from headgate.adapters import yaml_text
from headgate.cli import commands
from headgate.core.api_key import new_api_key
from headgate.edge.admin.server import serve_admin

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = str(Path(__file__).parents[2] / "examples" / "rules.yaml")


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401 (JSON)
        assert self.code == 0, self.err
        return json.loads(self.out)


class Headgate(Protocol):
    def __call__(self, *words: str, code: int = 0) -> Said: ...


@pytest.fixture
def headgate(database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Headgate:
    """Runs a command on a database of this test's own, in this process, and expects an exit code."""
    monkeypatch.setenv("HEADGATE_DATABASE_URL", database_url)

    def run(*words: str, code: int = 0) -> Said:
        ended = commands.run(list(words))
        out, err = capsys.readouterr()
        assert ended == code, f"{words}: {ended}\n{out}{err}"
        assert "Traceback" not in out + err
        return Said(ended, out, err)

    return run


def test_tiers_and_users(headgate: Headgate) -> None:
    """Tiers are made, changed, listed and deleted; users are put on them, and given limits of their own."""
    headgate("tiers", "set", "free", "--limit", "search=10/minute", "--default")
    headgate("tiers", "set", "pro", "--price", "49", "--display-name", "Professional", "--limit", "search=unlimited")
    listed = headgate("tiers", "list").out
    assert "free (default)" in listed
    assert "Professional" in listed
    assert headgate("tiers", "show", "pro").out.count("search unlimited") == 1
    assert headgate("tiers", "set", "pro", "--price", "59", "--json").json["version"] == 2

    headgate("users", "set", "u/1", "--tier", "pro")
    assert "on the default tier" in headgate("users", "set", "u/1", "--no-tier").out
    assert headgate("users", "set", "u2", "--tier", "pro", "--json").json["tier"] == "pro"
    assert "u/1" in headgate("users", "list").out
    assert [user["id"] for user in headgate("users", "list", "--tier", "pro", "--json").json] == ["u2"]
    assert "pro since" in headgate("users", "show", "u2").out
    assert "there are more" in headgate("users", "list", "--limit", "1").out
    assert "user 'u2' is on it" in headgate("tiers", "delete", "pro", code=1).err
    headgate("users", "delete", "u2")
    assert "there is no user 'u2'" in headgate("users", "show", "u2", code=1).err


def test_limits_of_ones_own(headgate: Headgate) -> None:
    """A user's own limit for a rule is set, shown and removed; what does not fit is refused with a sentence."""
    headgate("rules", "apply", EXAMPLES)
    headgate("users", "set", "u1")
    assert "search 500/hour" in headgate("users", "override", "u1", "search", "500/hour").out
    assert headgate("users", "show", "u1", "--json").json["overrides"] == {"search": ["500/hour"]}
    headgate("users", "set", "u1", "--tier", "premium")
    assert "search 500/hour" in headgate("users", "show", "u1").out
    assert "is not a limit" in headgate("users", "override", "u1", "search", "much", code=1).err
    assert "there is no active rule" in headgate("users", "override", "u1", "nothing", "5/day", code=1).err
    assert "or --remove" in headgate("users", "override", "u1", "search", code=1).err
    assert "the limits of the rule apply" in headgate("users", "override", "u1", "search", "--remove").out
    assert "keep one of them" in headgate("users", "set", "u1", "--tier", "a", "--no-tier", code=1).err


def test_keys_are_shown_once(headgate: Headgate) -> None:
    """A key is printed when it is made, alone with --quiet, and never again; rotated and revoked by its id."""
    headgate("users", "set", "u1")
    made = headgate("keys", "create", "--user", "u1", "--name", "phones", "--expires", "90d", "--json").json
    assert made["secret"].startswith("hg_")
    quiet = headgate("keys", "create", "--user", "u1", "--quiet").out
    assert quiet.startswith("hg_")
    assert quiet.count("\n") == 1
    loud = headgate("keys", "create", "--user", "u1").out
    assert "shown this one time" in loud
    listed = headgate("keys", "list", "--user", "u1").out
    assert made["key"]["id"] in listed
    assert made["secret"] not in listed
    rotated = headgate("keys", "rotate", made["key"]["id"], "--overlap", "1h")
    assert f"The old one, {made['key']['id']}, is good for another 1h." in rotated.out
    headgate("keys", "rotate", made["key"]["id"], "--quiet", code=1)
    other = headgate("keys", "list", "--state", "active", "--json").json[-1]["id"]
    headgate("keys", "revoke", other)
    assert "revoked" in headgate("keys", "show", other).out


def test_blocks_and_tokens(headgate: Headgate) -> None:
    """Networks and users are blocked and let in again; tokens are made with a role, shown once, and revoked."""
    made = headgate("blocks", "add", "--network", "192.0.2.0/24", "--reason", "scraping", "--until", "1h", "--json")
    assert "for good" in headgate("blocks", "add", "--user", "u1").out
    listed = headgate("blocks", "list").out
    assert "192.0.2.0/24" in listed
    assert "scraping" in listed
    assert "write 192.0.2.0/24" in headgate("blocks", "add", "--network", "192.0.2.7/24", code=1).err
    headgate("blocks", "remove", made.json["id"])
    assert "192.0.2.0/24" not in headgate("blocks", "list").out

    assert headgate("tokens", "create", "ci", "--role", "operator", "--quiet").out.startswith("hgt_")
    assert "with the role viewer" in headgate("tokens", "create", "eyes", "--expires", "1d").out
    (token,) = [each for each in headgate("tokens", "list", "--json").json if each["name"] == "ci"]
    headgate("tokens", "revoke", token["id"])
    assert "revoked" in headgate("tokens", "list").out
    assert "'admin', not 'king'" in headgate("tokens", "create", "x", "--role", "king", code=1).err


def test_rules_as_code(headgate: Headgate, tmp_path: Path) -> None:
    """Files are planned (2 where they differ), applied, dumped as the same, synchronised, and taken back."""
    assert "+ rule search\n" in headgate("rules", "plan", EXAMPLES, code=2).out
    assert headgate("rules", "apply", EXAMPLES).out.endswith("it holds for those that start\n")
    assert "the same  8 rules" in headgate("rules", "plan", EXAMPLES).out
    assert "the same" in headgate("rules", "apply", EXAMPLES).out
    dumped = tmp_path / "rules.yaml"
    headgate("rules", "dump", "-o", str(dumped))
    assert "own these rules" in headgate("rules", "plan", str(dumped), "--delete", code=1).err
    owner = ("--owner", "examples/rules.yaml")
    assert "the same" in headgate("rules", "plan", str(dumped), "--delete", *owner).out
    dumped.write_text("# notes of mine\n")
    assert "exists already" in headgate("rules", "dump", "-o", str(dumped), code=1).err
    assert dumped.read_text() == "# notes of mine\n"
    headgate("rules", "dump", "-o", str(dumped), "--force")
    headgate("rules", "dump", "-o", str(dumped))
    assert yaml_text.parse(headgate("rules", "dump").out).data == headgate("rules", "dump", "--json").json

    small = tmp_path / "small.yaml"
    small.write_text("rules:\n  - name: search\n    per: user\n    limits: 7/minute\n")
    assert "other files own these rules" in headgate("rules", "sync", str(small), code=1).err
    planned = headgate("rules", "plan", str(small), "--delete", *owner, code=2).out
    assert "'sync' asks for --delete-at-most 7 to delete so much" in planned
    refused = headgate("rules", "sync", str(small), *owner, code=1)
    assert "this would delete 7 of 8 rules (health, banned-network, " in refused.err
    done = headgate("rules", "sync", str(small), *owner, "--delete-at-most", "7")
    assert "~ rule search: limits tier:search → 7/minute\n" in done.out
    assert "- rule login\n" in done.out
    snapshots = headgate("rules", "history", "--json").json
    assert (
        "rules and tiers are those of" in headgate("rules", "rollback", "--snapshot", str(snapshots[-1]["number"])).out
    )
    assert "the same" in headgate("rules", "apply", EXAMPLES).out

    assert "the file 'examples/rules.yaml' owns the rule 'login'" in headgate("rules", "disable", "login").err
    headgate("rules", "enable", "login")
    assert "enabled true → false" in headgate("rules", "history", "login").out
    first = headgate("rules", "history", "search", "--json").json[-1]["change"]
    assert f"at change {first}" in headgate("rules", "rollback", "search", str(first)).out
    assert "rollback RULE CHANGE" in headgate("rules", "rollback", "search", code=1).err
    renamed = headgate("rules", "rename", "search", "find")
    assert "renamed rule search is find (id search)" in " ".join(renamed.out.split())
    assert "owns the rule 'find'" in renamed.err
    assert headgate("rules", "rename", "find", "search", "--json").json["id"] == "search"
    assert "snapshot" in headgate("rules", "history", "--limit", "1").out


def test_what_is_wrong_with_files_is_told_with_their_lines(headgate: Headgate, tmp_path: Path) -> None:
    """Problems that the API finds stand at the file and line that they come from, whichever file it was."""
    (tmp_path / "a.yaml").write_text("rules:\n  - name: a\n    limits: 5/day\n")
    (tmp_path / "b.yaml").write_text(
        "rules:\n  - name: b\n    limits: tier:nothing\n  - name: c\n    limits: 5/month\n"
    )
    files = [str(tmp_path / name) for name in ("a.yaml", "b.yaml")]
    said = headgate("rules", "plan", *files, code=1).err
    assert f"{files[1]}:5: rules[2].limits: a month has no fixed length" in said
    (tmp_path / "b.yaml").write_text("rules:\n  - name: a\n    limits: 5/day\n")
    assert (
        f"b.yaml:2: rules[0].name: the name 'a' is taken by {files[0]}:2"
        in headgate("rules", "apply", *files, code=1).err
    )


def test_the_quota_of_a_blocked_user_says_that_it_is_blocked(headgate: Headgate) -> None:
    """What is left under the limits is of no use to it; without a block there is no such line."""
    headgate("rules", "apply", EXAMPLES)
    assert "blocked" not in headgate("quota", "mallory").out.splitlines()[1]
    headgate("blocks", "add", "--user", "mallory", "--reason", "scraping")
    assert headgate("quota", "mallory").out.splitlines()[1] == "blocked for good: scraping"
    assert "for good" not in headgate("quota", "mall").out


def test_quota_and_explanation(headgate: Headgate) -> None:
    """A user's limits and the reasons behind a decision are shown, and as JSON."""
    headgate("rules", "apply", EXAMPLES)
    headgate("users", "set", "u1")
    shown = headgate("quota", "u1").out
    assert "10/minute" in shown
    assert "for each ip" in shown
    assert "not limited here" in shown
    assert headgate("quota", "u1", "--json").json["user"] == "u1"
    assert "shared ones stay" in headgate("quota", "u1", "--reset").out

    allowed = headgate("explain", "--user", "u1", "--method", "GET", "--path", "/api/search").out
    assert allowed.startswith("ALLOWED")
    assert "rl:{u=u1}:search:sc1m" in allowed
    assert "not POST" in allowed
    denied = headgate("explain", "--ip", "198.51.100.9", "--path", "/x", code=2).out
    assert "blocks it" in denied
    said = headgate("explain", "--path", "/health", "--cost", "3", "--attribute", "a=b", "--json").json
    assert said["gates"][0]["decides"]
    assert "exempts it" in headgate("explain", "--path", "/health").out


def test_what_happened(headgate: Headgate) -> None:
    """Changes are listed with what differs; events, violators and usage are asked for and may be none."""
    headgate("tiers", "set", "free", "--limit", "search=1/day")
    headgate("tiers", "set", "free", "--price", "5")
    headgate("tokens", "create", "ci", "--quiet")
    changes = headgate("changes").out
    assert "tier free" in changes
    assert "price 0" in changes
    assert "token ci" in changes
    assert len(headgate("changes", "--kind", "tier", "--limit", "1", "--json").json) == 1
    for verb in (["events", "--since", "3d"], ["violators"], ["usage", "--from", "2026-01-01", "--to", "2026-01-02"]):
        assert headgate(*verb).out == "there are none\n"
        assert headgate(*verb, "--json").json == []
    assert "expected" in headgate("events", "--decision", "maybe", code=1).err


def test_very_many_users_come_from_a_file(headgate: Headgate, tmp_path: Path) -> None:
    """A file is loaded as a whole or not at all, and what is wrong is told with the user it is about."""
    headgate("tiers", "set", "pro", "--limit", "search=1/day")
    file = tmp_path / "users.csv"
    file.write_text("id,tier\n" + "".join(f"u{number},pro\n" for number in range(5_000)))
    assert headgate("users", "load", str(file)).out == "loaded  5000 users\n"
    assert len(headgate("users", "list", "--limit", "2500", "--json").json) == 2_500
    file.write_text("id,tier\nx1,pro\nx2,nothing\n")
    assert f"{file}, user 2: tier: there is no tier 'nothing'" in headgate("users", "load", str(file), code=1).err
    assert "there is no user 'x1'" in headgate("users", "show", "x1", code=1).err


def test_very_many_keys_come_from_a_file(headgate: Headgate, tmp_path: Path) -> None:
    """Keys come with a secret or a hash; what is wrong is told with the key it is about, and never repeats a secret."""
    made = [{"secret": new_api_key(b"%032d" % number), "name": f"k{number}"} for number in range(100)]
    file = tmp_path / "keys.jsonl"
    file.write_text("\n".join(map(json.dumps, made)))
    assert headgate("keys", "load", str(file)).out == "loaded  100 keys\n"
    assert len(headgate("keys", "list", "--limit", "200", "--json").json) == 100
    file.write_text('{"secret": "hg_wrong"}\n')
    refused = headgate("keys", "load", str(file), code=1).err
    assert f"{file}, key 1: secret: this is not a key that headgate has made" in refused
    assert "hg_wrong" not in refused


@pytest.fixture
def served(database_url: str) -> Iterator[str]:
    """The address of an admin API that listens."""
    address, started, ending = free_address("127.0.0.1", 0), threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        async with opened(database_url) as admin:
            serving = asyncio.create_task(serve_admin(admin.app, address, started.set))
            await ending.wait()
            serving.cancel()
            await asyncio.wait({serving})

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(20)
    yield address.url
    loops[0].call_soon_threadsafe(ending.set)
    thread.join()


def test_commands_speak_http_too(served: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With an address and a token the same commands ask a running service; a wrong token is told as such."""
    there = ["--url", served, "--token", BOOTSTRAP]
    assert commands.run(["tiers", "set", "free", "--limit", "search=1/day", *there]) == 0
    assert commands.run(["rules", "apply", EXAMPLES, *there]) == 0
    assert commands.run(["rules", "plan", EXAMPLES, "--delete", *there]) == 0
    capsys.readouterr()
    assert commands.run(["tiers", "list", "--url", served, "--token", "wrong"]) == 1
    assert "(--token or HEADGATE_ADMIN_TOKEN)" in capsys.readouterr().err


def test_hot_counters(headgate: Headgate) -> None:
    """The hottest counters are listed, and as JSON."""
    assert headgate("hot", "--json").json["window_seconds"] == 60
    assert headgate("hot", "--limit", "5").out
    assert "--limit" in headgate("hot", "--limit", "0", code=1).err
