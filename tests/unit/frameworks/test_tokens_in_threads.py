"""Tokens whose keys an issuer publishes, in applications without an event loop."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.test import Client, override_settings
from flask import Flask
from tests.unit.adapters.test_blocking import fork
from tests.unit.dataplane.signing import jwk, private_key, signed
from tests.unit.frameworks import django_project

from headgate import InvalidSettings
from headgate.adapters import blocking
from headgate.adapters.clock import monotonic
from headgate.flask import RateLimiter
from headgate.wsgi import RateLimitMiddleware, admission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, MutableMapping
    from pathlib import Path

django.setup()

_RULES = [{"name": "each", "per": ["user"], "limits": "1000/day"}]
_PATIENCE = 60


@pytest.fixture(autouse=True)
def _threads_end_with_the_test() -> Iterator[None]:
    before = set(blocking._all)
    yield
    for each in set(blocking._all) - before:
        each.close()


def _bearer(user: str, key: str = "P-256:a") -> dict[str, str]:
    token = signed({"sub": user, "exp": 4_000_000_000}, private_key(key), "ES256", {"alg": "ES256", "kid": key})
    return {"Authorization": f"Bearer {token}"}


def _publish(path: Path, *keys: str) -> None:
    path.write_text(json.dumps({"keys": [jwk(key, "ES256", kid=key) for key in keys]}))


@pytest.fixture
def issuer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The issuer's key document, named in the environment."""
    path = tmp_path / "keys.json"
    _publish(path, "P-256:a")
    monkeypatch.setenv("HEADGATE_JWT_ALGORITHMS", "ES256")
    monkeypatch.setenv("HEADGATE_JWT_JWKS_URL", path.as_uri())
    return path


def _flask() -> Callable[[dict[str, str]], str]:
    app = Flask("small")
    limiter = RateLimiter(app, rules=_RULES)
    app.get("/")(lambda: str(limiter.admission().request.user))
    return lambda headers: app.test_client().get("/", headers=headers).text


def _wsgi() -> Callable[[dict[str, str]], str]:
    def app(environ: MutableMapping[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        start("200 OK", [])
        return [str(admission(environ).request.user).encode()]

    limited = RateLimitMiddleware(app, rules=_RULES)

    def call(headers: dict[str, str]) -> str:
        environ: dict[str, Any] = {f"HTTP_{name.upper()}": value for name, value in headers.items()}
        answer = limited({**environ, "REQUEST_METHOD": "GET", "PATH_INFO": "/"}, lambda *_: None)
        return b"".join(answer).decode()

    return call


@pytest.mark.usefixtures("issuer")
@pytest.mark.parametrize("application", [_flask, _wsgi])
def test_callers_are_known_by_tokens_of_an_issuer(application: Callable[[], Callable[[dict[str, str]], str]]) -> None:
    """The first call waits for the keys, so that its caller is known; a forged token identifies no caller."""
    call = application()
    assert call(_bearer("ann")) == "ann"
    assert call(_bearer("eve", "P-256:other")) == "None"


@pytest.mark.usefixtures("issuer")
def test_django_knows_callers_by_tokens_of_an_issuer() -> None:
    """The same in Django."""
    rules = [{"name": "each", "per": ["user"], "limits": "1/day"}]
    middleware = ["headgate.django.RateLimitMiddleware"]
    with override_settings(HEADGATE={"RULES": rules}, MIDDLEWARE=middleware, ROOT_URLCONF=django_project.__name__):
        client = Client()
        codes = [client.get("/plain/a/", headers=_bearer(user)).status_code for user in ("ann", "ann", "bob")]
    assert codes == [200, 429, 200]


@pytest.mark.usefixtures("issuer")
def test_calls_without_credentials_are_known_by_address() -> None:
    """A call without token and key is identified by its address, before and after the keys are fetched."""
    call = _flask()
    assert [call({}), call(_bearer("ann")), call({})] == ["None", "ann", "None"]


def test_new_keys_are_fetched_in_the_background(issuer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new key of the issuer is fetched in the background; tokens of the old key work meanwhile."""
    ahead = 0.0
    monkeypatch.setattr("headgate.wiring.identity.monotonic", lambda: monotonic() + ahead)
    call = _flask()
    assert call(_bearer("ann")) == "ann"
    _publish(issuer, "P-256:a", "P-256:b")
    ahead = 11.0
    until = monotonic() + _PATIENCE
    while call(_bearer("bob", "P-256:b")) != "bob":
        assert monotonic() < until
        assert call(_bearer("ann")) == "ann"


@pytest.mark.serial  # a worker of pytest-xdist has threads of its own, and a child that is forked has their locks
@pytest.mark.usefixtures("issuer")
def test_threads_and_forked_children_know_callers() -> None:
    """Concurrent threads identify their callers, and so does a child that is forked later."""
    call = _flask()
    users = [f"u{number}" for number in range(64)]
    with ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda user: call(_bearer(user)), users)) == users
    child = fork()
    if child == 0:
        signal.alarm(_PATIENCE)  # a child that hangs dies by it
        os._exit(0 if call(_bearer("child")) == "child" else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert call(_bearer("parent")) == "parent"


def test_an_issuer_that_cannot_be_meant_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invalid settings raise when the application is built."""
    monkeypatch.setenv("HEADGATE_JWT_ALGORITHMS", "ES256")
    monkeypatch.setenv("HEADGATE_JWT_JWKS_URL", "http://login.example/keys")
    with pytest.raises(InvalidSettings, match="neither https"):
        _wsgi()
