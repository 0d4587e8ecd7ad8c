"""What applies to every request to the admin API: problems, bodies, tags, pages, repeated requests."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from typing import TYPE_CHECKING
from urllib.parse import quote

from tests.support.admin import BOOTSTRAP, SEARCH, problem_of, with_admin

from headgate.controlplane.access import Role
from headgate.edge.admin import pages
from headgate.errors import DatabaseError, StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, MutableMapping
    from typing import Any

    import pytest
    from tests.support.admin import Admin

    from headgate.adapters.postgres import Database


def test_answers_are_not_kept_and_not_shown_as_pages(database_url: str) -> None:
    """Every answer forbids caching and sniffing."""

    async def test(admin: Admin) -> None:
        for path in ("/v1/me", "/v1/nothing", "/livez"):
            headers = (await admin.ask("GET", path)).headers
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert "frame-ancestors 'none'" in headers["content-security-policy"]

    with_admin(database_url, test)


def test_a_path_that_takes_other_methods_says_which(database_url: str) -> None:
    """405 lists all methods of the path."""

    async def test(admin: Admin) -> None:
        answer = await admin.ask("PATCH", "/v1/users/u1", {})
        assert "PUT" in problem_of(answer, 405)["message"]
        assert answer.headers["allow"] == "DELETE, GET, HEAD, PUT"

    with_admin(database_url, test)


def test_head_is_get_without_the_body(database_url: str) -> None:
    """HEAD gets the headers of GET, without a body."""

    async def test(admin: Admin) -> None:
        answer = await admin.ask("HEAD", "/v1/me")
        assert (answer.status_code, answer.content) == (200, b"")
        assert (await admin.ask("HEAD", "/v1/users/unknown")).status_code == 404

    with_admin(database_url, test)


IDS = ("a/b", "a%2Fb", "ü", "日本", "a b", "?", "#", ".", "..", "a+b", "%", "x" * 255, "🙂", "publish", "a\nb")


def test_an_id_can_be_any_text(database_url: str) -> None:
    """Ids are opaque: percent-encoded, they may contain anything, including slashes."""

    async def test(admin: Admin) -> None:
        for id_ in IDS:
            made = await admin.ask("POST", "/v1/users", {"id": id_})
            assert made.status_code == 201, made.text
            path = f"/v1/users/{quote(id_, safe='').replace('.', '%2E')}"  # httpx resolves dots, as browsers do
            assert (await admin.good("GET", path))["id"] == id_
            assert made.headers["location"].replace(".", "%2E") == path
            await admin.good("DELETE", path)
            problem_of(await admin.ask("GET", path), 404)

    with_admin(database_url, test)


def test_a_path_that_is_not_utf_8_is_refused(database_url: str) -> None:
    """A path that is not UTF-8 gets 400."""

    async def test(admin: Admin) -> None:
        problem_of(await admin.ask("GET", "/v1/users/%ff"), 400)
        problem_of(await admin.ask("GET", "/v1/users/%00"), 404)

    with_admin(database_url, test)


BAD_JSON = [
    b"{",
    b"",
    b"null",
    b"[]",
    b'"text"',
    b"7",
    b"{'id': 1}",
    b'{"id": "a", "id": "b"}',
    b'{"id": "\\ud800"}',
    b'{"id": "\xff"}',
    b'{"price": NaN, "name": "x"}',
    b'{"price": Infinity, "name": "x"}',
    b'{"price": 1e999, "name": "x"}',
    b'{"price": ' + b"1" * 5_000 + b"}",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    *(b'{"name": "x", "limits": ' + b"[" * depth + b"]" * depth + b"}" for depth in (200, 400, 800, 900, 950, 990)),
    *(b'{"id": "x", "rules": [' + b'{"a":' * depth + b"7" + b"}" * depth + b"]}" for depth in (200, 450, 480)),
    b'\xef\xbb\xbf{"id": "u"}',
    b'{"id": "u"} {"id": "v"}',
    b"\x00",
]


def test_what_is_not_a_json_object_is_refused(database_url: str) -> None:
    """It gets a message, and nothing is stored."""

    async def test(admin: Admin) -> None:
        for body in BAD_JSON:
            for path in ("/v1/users", "/v1/tiers", "/v1/rules", "/v1/ruleset/apply"):
                answer = await admin.ask("POST", path, body, content_type="application/json")
                problem_of(answer, answer.status_code)
                assert answer.status_code in {400, 422}, answer.text
        assert await admin.value("SELECT count(*) FROM changes") == 0

    with_admin(database_url, test)


NOT_JSON: list[dict[str, str]] = [
    {},
    {"content_type": "text/plain"},
    {"content_type": "application/x-www-form-urlencoded"},
    {"content_type": "application/json; charset=latin-1"},
    {"content_type": "application/json", "content_encoding": "gzip"},
]


def test_a_body_must_be_said_to_be_json(database_url: str) -> None:
    """Another Content-Type gets 415 with the right one."""

    async def test(admin: Admin) -> None:
        for headers in NOT_JSON:
            problem_of(await admin.ask("POST", "/v1/users", b'{"id": "u1"}', **headers), 415)

    with_admin(database_url, test)


def test_a_body_that_is_too_large_is_refused_while_it_is_read(database_url: str) -> None:
    """With or without a Content-Length, no more is read than is allowed."""

    async def test(admin: Admin) -> None:
        answer = await admin.ask("POST", "/v1/users", b" " * (1024 * 1024 + 1), content_type="application/json")
        problem_of(answer, 413)
        read = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal read
            while True:
                read += 65_536
                yield b" " * 65_536

        headers = {"authorization": f"Bearer {BOOTSTRAP}", "content-type": "application/json"}
        answer = await admin.client.post("/v1/users", content=endless(), headers=headers)
        problem_of(answer, 413)
        assert read <= 1024 * 1024 + 2 * 65_536
        big = json.dumps({"rules": [SEARCH | {"owner_note": "x" * 2_000_000}]}).encode()
        assert (
            await admin.ask("POST", "/v1/ruleset/validate", big, content_type="application/json")
        ).status_code != 413

    with_admin(database_url, test)


def test_a_body_of_very_many_parts_is_refused_before_it_is_read(database_url: str) -> None:
    """A few bytes each take many more in memory, so a rule set of empty parts could use up the memory."""

    async def test(admin: Admin) -> None:
        token = await admin.token(Role.VIEWER)
        for body, status in ((b'{"rules":[' + b"{}," * 4_000_001 + b"{}]}", 413), (b"[" * 1_000_000, 400)):
            answer = await admin.ask("POST", "/v1/ruleset/validate", body, token=token, content_type="application/json")
            problem_of(answer, status)

    with_admin(database_url, test)


def test_a_body_where_none_is_taken_is_refused(database_url: str) -> None:
    """A body that would be ignored is refused."""

    async def test(admin: Admin) -> None:
        problem_of(await admin.ask("POST", "/v1/rules/publish", {"names": ["search"]}), 400)
        await admin.good("POST", "/v1/rules/publish", {})

    with_admin(database_url, test)


def test_unknown_and_repeated_query_parameters_are_refused(database_url: str) -> None:
    """A misspelt filter is not silently ignored."""

    async def test(admin: Admin) -> None:
        assert "tier" in problem_of(await admin.ask("GET", "/v1/users?teir=free"), 422)["message"]
        problem_of(await admin.ask("GET", "/v1/users?limit=1&limit=2"), 422)
        for wrong in ("0", "1001", "-1", "1.0", "1_0", "%201", "x", "", "9" * 400):
            (problem,) = problem_of(await admin.ask("GET", f"/v1/users?limit={wrong}"), 422)["problems"]
            assert problem["field"] == "limit"
        for wrong in ("yes", "1", "True", ""):
            problem_of(await admin.ask("POST", f"/v1/rules?draft={wrong}", SEARCH), 422)

    with_admin(database_url, test)


def test_what_goes_wrong_inside_is_logged_and_not_shown(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """500 and 503 have a message without details of the program."""

    async def test(admin: Admin) -> None:
        for error, status in (
            (RuntimeError("the secret plan"), 500),
            (DatabaseError("the secret plan", transient=True), 503),
            (StoreError("the secret plan", transient=False), 503),
        ):

            async def fail(*_: object, error: Exception = error, **__: object) -> None:
                raise error

            monkeypatch.setattr(type(admin.parts.users), "list", fail)
            answer = await admin.ask("GET", "/v1/users")
            assert "secret plan" not in str(problem_of(answer, status))
            assert "secret plan" in caplog.text
            assert ("retry-after" in answer.headers) == (getattr(error, "transient", False))
            caplog.clear()

    with_admin(database_url, test)


def test_not_ready_without_a_database(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a database the process is alive, but not ready."""

    async def test(admin: Admin) -> None:
        assert (await admin.good("GET", "/readyz"))["status"] == "ready"

        async def fail(*_: object) -> None:
            msg = "gone"
            raise DatabaseError(msg, transient=True)

        monkeypatch.setattr(type(admin.database), "rows", fail)
        assert (await admin.ask("GET", "/readyz")).status_code == 503
        assert (await admin.ask("GET", "/livez")).status_code == 200

    with_admin(database_url, test)


def test_tags_keep_changes_apart(database_url: str) -> None:
    """If-Match admits a change only if the record has not changed since; all its forms work as in RFC 9110."""

    async def test(admin: Admin) -> None:
        made = await admin.ask("POST", "/v1/tiers", {"name": "free"})
        assert made.headers["etag"] == '"1"'
        for wrong in ("1", '"1', "W/1", '"1" "2"', '"1",', ",", '"\x01"'):
            problem_of(await admin.ask("PUT", "/v1/tiers/free", {}, if_match=wrong), 400)
        for other in ('"2"', '"x"', 'W/"1"', '"2", "3"', '""'):
            problem_of(await admin.ask("PUT", "/v1/tiers/free", {"price": 9}, if_match=other), 412)
        version = 1
        for good in ("*", '"2"', '"7" , "3"', 'W/"4", "4"', '"5.abc"'):
            answer = await admin.ask("PUT", "/v1/tiers/free", {"price": version}, if_match=good)
            version += 1
            assert answer.headers.get("etag") == f'"{version}"', (good, answer.text)
        problem_of(await admin.ask("DELETE", "/v1/tiers/free", if_match='"1"'), 412)

    with_admin(database_url, test)


def test_what_has_not_changed_is_not_sent_again(database_url: str) -> None:
    """If-None-Match gets 304 without a body; members that change without a new version count as a change."""

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/tiers", {"name": "free"})
        for same in ('"1"', 'W/"1"', '"0", "1"', "*"):
            answer = await admin.ask("GET", "/v1/tiers/free", if_none_match=same)
            assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", '"1"')
        assert (await admin.ask("GET", "/v1/tiers/free", if_none_match='"2"')).status_code == 200
        problem_of(await admin.ask("GET", "/v1/tiers/free", if_none_match="2"), 400)
        await admin.good("POST", "/v1/users", {"id": "u1"})
        tag = (await admin.ask("GET", "/v1/users/u1")).headers["etag"]
        assert (await admin.ask("GET", "/v1/users/u1", if_none_match=tag)).status_code == 304
        await admin.execute("UPDATE users SET times_exceeded = 5")
        assert (await admin.ask("GET", "/v1/users/u1", if_none_match=tag)).json()["times_exceeded"] == 5
        await admin.good("PUT", "/v1/users/u1", {}, if_match=tag)

    with_admin(database_url, test)


def test_of_two_changes_of_the_same_version_one_wins(database_url: str) -> None:
    """The other change gets 412, and nothing of it is stored."""

    async def test(admin: Admin) -> None:
        await admin.good("POST", "/v1/users", {"id": "u1"})
        await admin.good("POST", "/v1/rules", SEARCH)
        for path, bodies in (
            ("/v1/users/u1", [{"overrides": {"search": f"{n}/minute"}} for n in range(1, 9)]),
            ("/v1/rules/search", [SEARCH | {"limits": f"{n}/minute"} for n in range(1, 9)]),
        ):
            tag = (await admin.ask("GET", path)).headers["etag"]
            answers = await asyncio.gather(*(admin.ask("PUT", path, body, if_match=tag) for body in bodies))
            assert sorted(answer.status_code for answer in answers) == [200] + [412] * 7

    with_admin(database_url, test)


def test_pages_have_everything_once_while_others_write(database_url: str) -> None:
    """Records that exist from the first page to the last are listed exactly once, whatever is added or deleted
    meanwhile.
    """

    async def test(admin: Admin) -> None:
        for number in range(10, 30):
            await admin.good("POST", "/v1/users", {"id": f"u{number}"})
        seen: list[str] = []
        path = "/v1/users?limit=7"
        cursor = None
        for new in ("u00", "u15x", "u99"):
            page = await admin.good("GET", path if cursor is None else f"{path}&after={cursor}")
            seen += [user["id"] for user in page["items"]]
            cursor = page["next"]
            await admin.good("POST", "/v1/users", {"id": new})
            await admin.good("DELETE", f"/v1/users/{seen[0]}")
            await admin.good("POST", "/v1/users", {"id": seen[0]})
        page = await admin.good("GET", f"{path}&after={cursor}") if cursor else {"items": [], "next": None}
        seen += [user["id"] for user in page["items"]]
        assert page["next"] is None
        assert len(seen) == len(set(seen))
        assert {f"u{number}" for number in range(10, 30)} <= set(seen)

    with_admin(database_url, test)


def test_a_cursor_that_was_tampered_with_is_refused(database_url: str) -> None:
    """A changed cursor is refused, and so is one of another list."""

    async def test(admin: Admin) -> None:
        for number in range(3):
            await admin.good("POST", "/v1/users", {"id": f"u{number}"})
        cursor = (await admin.good("GET", "/v1/users?limit=1"))["next"]
        for wrong in (
            cursor[:-1],
            cursor + "A",
            "x" + cursor[1:],
            cursor.upper(),
            "",
            "=",
            "%00",
            "u1",
            "é",
            cursor + "%3D",
        ):
            problem_of(await admin.ask("GET", f"/v1/users?limit=1&after={wrong}"), 400)
        for path in ("/v1/rules", "/v1/keys", "/v1/changes", "/v1/events", "/v1/usage", "/v1/snapshots", "/v1/tiers"):
            problem_of(await admin.ask("GET", f"{path}?after={cursor}"), 400)

    with_admin(database_url, test)


def test_a_cursor_that_was_made_up_is_refused(database_url: str) -> None:
    """The checksum is not a secret, so a caller can forge a cursor; its content is checked."""
    at = "2026-01-31T12:00:00"
    wrong: list[object] = [None, True, 1.5, -1, 2**70, [], {}, ["x"], ["x", "y", "z"], [at, "y", at], [at, 1, 2], "\0"]

    async def test(admin: Admin) -> None:
        for kind in ("users", "rules", "tiers", "keys", "blocks", "snapshots", "changes", "events", "usage"):
            other = "1" if kind in {"snapshots", "changes"} else 1
            made_up = [pages.cursor(kind, position) for position in (*wrong, other)]
            for text in (b"", b"x", b"[" * 2_000):
                check = hashlib.sha256(kind.encode() + b"\0" + text).digest()[:6]
                made_up.append(base64.urlsafe_b64encode(check + text).decode().rstrip("="))
            for each in made_up:
                problem_of(await admin.ask("GET", f"/v1/{kind}?after={each}"), 400)

    with_admin(database_url, test)


def test_a_copy_of_a_request_gets_the_same_answer(database_url: str) -> None:
    """With an Idempotency-Key a request takes effect once, and a secret is sent once."""

    async def test(admin: Admin) -> None:
        body = {"name": "phone"}
        first = await admin.ask("POST", "/v1/keys", body, idempotency_key="k1")
        again = await admin.ask("POST", "/v1/keys", body, idempotency_key="k1")
        assert first.status_code == again.status_code == 201
        assert "idempotency-replayed" not in first.headers
        assert again.headers["idempotency-replayed"] == "true"
        assert again.headers["location"] == first.headers["location"]
        assert again.headers["etag"] == first.headers["etag"]
        secret = first.json()["secret"]
        assert again.json() == first.json() | {"secret": None, "shown_before": True}
        assert len((await admin.good("GET", "/v1/keys"))["items"]) == 1
        kept = await admin.value("SELECT string_agg(encode(body, 'escape'), '') FROM idempotency")
        assert kept
        assert secret not in kept
        problem_of(await admin.ask("POST", "/v1/keys", {"name": "other"}, idempotency_key="k1"), 422)
        problem_of(await admin.ask("POST", "/v1/keys?x=1", body, idempotency_key="k1"), 422)
        other = await admin.token(Role.ADMIN)
        assert (await admin.ask("POST", "/v1/keys", body, token=other, idempotency_key="k1")).json()[
            "secret"
        ] is not None
        token = {"name": "ci", "role": "viewer"}
        shown = (await admin.good("POST", "/v1/tokens", token, idempotency_key="k2"))["secret"]
        assert (await admin.good("POST", "/v1/tokens", token, idempotency_key="k2"))["secret"] is None
        assert shown not in await admin.value("SELECT string_agg(encode(body, 'escape'), '') FROM idempotency")

    with_admin(database_url, test)


def test_copies_at_the_same_time_take_effect_once(database_url: str) -> None:
    """Copies that arrive while the first is in flight get 409."""

    async def test(admin: Admin) -> None:
        answers = await asyncio.gather(
            *(admin.ask("POST", "/v1/keys", {"name": "x"}, idempotency_key="same") for _ in range(8))
        )
        assert {answer.status_code for answer in answers} <= {201, 409}
        assert (
            sum(answer.status_code == 201 and "idempotency-replayed" not in answer.headers for answer in answers) == 1
        )
        assert len((await admin.good("GET", "/v1/keys"))["items"]) == 1
        assert (await admin.ask("POST", "/v1/keys", {"name": "x"}, idempotency_key="same")).status_code == 201

    with_admin(database_url, test)


def test_what_failed_can_be_tried_again_with_the_same_key(database_url: str) -> None:
    """Only success is stored; keys are deleted after a day."""

    async def test(admin: Admin) -> None:
        problem_of(await admin.ask("POST", "/v1/users", {"id": "u1", "tier": "gold"}, idempotency_key="k"), 422)
        await admin.good("POST", "/v1/tiers", {"name": "gold"})
        await admin.good("POST", "/v1/users", {"id": "u1", "tier": "gold"}, idempotency_key="k")
        await admin.good("POST", "/v1/users", {"id": "u1", "tier": "gold"}, idempotency_key="k")
        problem_of(await admin.ask("POST", "/v1/users", {"id": "u2"}, idempotency_key="k"), 422)
        await admin.execute("UPDATE idempotency SET at = now() - interval '25 hours'")
        await admin.good("POST", "/v1/users", {"id": "u2"}, idempotency_key="k")
        for wrong in ("", " ", "x" * 256, "\t"):
            problem_of(await admin.ask("POST", "/v1/users", {"id": "u3"}, idempotency_key=wrong), 400)

    with_admin(database_url, test)


def test_a_change_is_reported_even_if_the_answer_cannot_be_stored(
    database_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The caller gets the answer; a repeat has no effect and gets 409."""

    async def test(admin: Admin) -> None:
        rows = type(admin.database).rows

        async def fail(database: Database, statement: str, *arguments: object) -> object:
            if statement == "idempotency.keep":
                msg = "gone"
                raise DatabaseError(msg, transient=True)
            return await rows(database, statement, *arguments)

        monkeypatch.setattr(type(admin.database), "rows", fail)
        await admin.good("POST", "/v1/keys", {"name": "x"}, idempotency_key="k")
        assert "could not be stored" in caplog.text
        answer = await admin.ask("POST", "/v1/keys", {"name": "x"}, idempotency_key="k")
        assert "took effect" in problem_of(answer, 409)["message"]
        assert len((await admin.good("GET", "/v1/keys"))["items"]) == 1

    with_admin(database_url, test)


def test_a_change_that_may_have_been_made_is_not_made_again(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the answer to a commit is lost, the caller is not told to retry, and a repeat has no effect."""

    async def test(admin: Admin) -> None:
        create = admin.parts.keys.create

        async def lose_the_answer(data: object, who: str) -> object:
            await create(data, who)
            msg = "the connection was lost"
            raise DatabaseError(msg, transient=True, perhaps_done=True)

        monkeypatch.setattr(admin.parts.keys, "create", lose_the_answer)
        first = await admin.ask("POST", "/v1/keys", {"name": "x"}, idempotency_key="k")
        assert "check whether it was made" in problem_of(first, 503)["message"]
        assert "retry-after" not in first.headers
        problem_of(await admin.ask("POST", "/v1/keys", {"name": "x"}, idempotency_key="k"), 409)
        assert len((await admin.good("GET", "/v1/keys"))["items"]) == 1

    with_admin(database_url, test)


def test_a_body_that_breaks_off_is_not_an_error_of_the_service(
    database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that disconnects in the middle leaves no row and no log line."""

    async def test(admin: Admin) -> None:
        half: MutableMapping[str, Any] = {"type": "http.request", "body": b'{"id": ', "more_body": True}
        sent = iter([half, {"type": "http.disconnect"}])
        answered: list[MutableMapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            return next(sent)

        async def send(message: MutableMapping[str, Any]) -> None:
            answered.append(message)

        headers = [(b"authorization", f"Bearer {BOOTSTRAP}".encode()), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/users", "query_string": b"", "headers": headers}
        await admin.app(scope, receive, send)
        assert answered[0]["status"] == 400
        assert caplog.text == ""

    with_admin(database_url, test)
