"""All verbs together, and how they end.

A verb returns its exit code: 0 is success, 1 is failure, 2 is a denial (`check`, `peek`, `explain`)
or a difference (`rules plan`, `db status`, `usage reconcile`). So usage errors, which are 2 elsewhere, are 1 here.

A new verb is a function in a module of this package, a line in `VERBS` or `GROUPS`, and its name in `SUBJECTS`. Only
the module of the verb that is called is imported; ``headgate --help`` reads the docstrings of the others.
"""

import ast
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.resources import files
from inspect import getdoc
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer._completion_classes import completion_init
from typer.core import TyperGroup

from headgate import __version__
from headgate.cli.examples import epilog
from headgate.cli.failures import report
from headgate.settings import words_to_complete


class Verb(NamedTuple):
    """Where a verb is: a module of this package, and a function in it."""

    module: str
    function: str

    def load(self) -> Callable[..., object]:
        """Import it."""
        function: Callable[..., object] = getattr(import_module(f"{__package__}.{self.module}"), self.function)
        return function

    def help(self) -> str | None:
        """Its docstring, read without importing the module."""
        source = files(__package__).joinpath(f"{self.module}.py").read_text(encoding="utf-8")
        functions = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
        return next((ast.get_docstring(node) for node in functions if node.name == self.function), None)


def flowing(function: Callable[..., object]) -> str:
    """A function's docstring as help: paragraphs that fill the width of any terminal; lists stay lists."""
    paragraphs = getdoc(function) or ""
    return "\n\n".join(each if "\n- " in f"\n{each}" else each.replace("\n", " ") for each in paragraphs.split("\n\n"))


class Group(NamedTuple):
    """Verbs below a word."""

    help: str
    verbs: Mapping[str, Verb]
    itself: Verb | None = None
    """What the word does alone."""


VERBS: Final = {
    "serve": Verb("serve", "serve"),
    "gateway": Verb("gateway", "gateway"),
    "demo": Verb("demo", "demo"),
    "check": Verb("check", "check"),
    "peek": Verb("check", "peek"),
    "explain": Verb("explain", "explain"),
    "quota": Verb("quota", "quota"),
    "top": Verb("top", "top"),
    "status": Verb("status", "status"),
    "processes": Verb("processes", "processes"),
    "hot": Verb("hot", "hot"),
    "changes": Verb("activity", "changes"),
    "violators": Verb("activity", "violators"),
    "near-limits": Verb("analytics", "near_limits"),
    "utilisation": Verb("analytics", "utilisation"),
    "endpoints": Verb("analytics", "endpoints"),
    "metrics": Verb("analytics", "metrics"),
    "restore": Verb("backup", "restore"),
    "migrate": Verb("migrate", "migrate"),
    "doctor": Verb("doctor", "doctor"),
    "completion": Verb("completion", "completion"),
}
GROUPS: Final = {
    "simulate": Group("", {"topology": Verb("topology", "topology")}, Verb("simulate", "simulate")),
    "events": Group("", {"show": Verb("activity", "show_event")}, Verb("activity", "events")),
    "backup": Group(
        "", {"list": Verb("backup", "list_backups"), "verify": Verb("backup", "verify")}, Verb("backup", "backup")
    ),
    "usage": Group(
        "", {"export": Verb("usage", "export"), "reconcile": Verb("usage", "reconcile")}, Verb("usage", "usage")
    ),
    "rules": Group(
        "Rules: in files, in the database, and their history.",
        {
            "validate": Verb("rules", "validate"),
            "list": Verb("listed_rules", "list_rules"),
            "show": Verb("listed_rules", "show_rule"),
            "plan": Verb("rules", "plan"),
            "apply": Verb("rules", "apply"),
            "sync": Verb("rules", "sync"),
            "dump": Verb("stored_rules", "dump"),
            "history": Verb("stored_rules", "history"),
            "rollback": Verb("stored_rules", "rollback"),
            "rename": Verb("stored_rules", "rename"),
            "enable": Verb("stored_rules", "enable"),
            "disable": Verb("stored_rules", "disable"),
            "import": Verb("stored_rules", "import_rules"),
            "schema": Verb("stored_rules", "schema"),
        },
    ),
    "tiers": Group(
        "Tiers: the plans that users are on.",
        {
            "list": Verb("tiers", "list_tiers"),
            "show": Verb("tiers", "show"),
            "set": Verb("tiers", "set_tier"),
            "delete": Verb("tiers", "delete"),
        },
    ),
    "users": Group(
        "Users: their tiers and their own limits.",
        {
            "list": Verb("users", "list_users"),
            "show": Verb("users", "show"),
            "set": Verb("users", "set_user"),
            "delete": Verb("users", "delete"),
            "override": Verb("users", "override"),
            "load": Verb("bulk_load", "load_users"),
            "story": Verb("activity", "story"),
        },
    ),
    "keys": Group(
        "API keys: shown once, stored as a hash.",
        {
            "list": Verb("keys", "list_keys"),
            "show": Verb("keys", "show"),
            "create": Verb("keys", "create"),
            "limit": Verb("keys", "limit_key"),
            "rotate": Verb("keys", "rotate"),
            "revoke": Verb("keys", "revoke"),
            "usage": Verb("keys", "usage"),
            "load": Verb("bulk_load", "load_keys"),
        },
    ),
    "blocks": Group(
        "Blocks of users, API keys and networks.",
        {"list": Verb("blocks", "list_blocks"), "add": Verb("blocks", "add"), "remove": Verb("blocks", "remove")},
    ),
    "tokens": Group(
        "Tokens of the admin API, and what each may do.",
        {"list": Verb("tokens", "list_tokens"), "create": Verb("tokens", "create"), "revoke": Verb("tokens", "revoke")},
    ),
    "db": Group("The database schema.", {"migrate": Verb("db", "migrate"), "status": Verb("db", "status")}),
    "archive": Group(
        "Archived events of past months.",
        {
            "run": Verb("archive", "run"),
            "list": Verb("archive", "list_archives"),
            "query": Verb("archive", "query"),
            "restore": Verb("archive", "restore"),
        },
    ),
}

SUBJECTS: Final = {
    "Run": ("serve", "gateway", "demo", "top", "status", "processes", "hot"),
    "Ask": ("check", "peek", "explain", "quota"),
    "Rules, and the callers they limit": ("rules", "tiers", "users", "keys", "blocks", "simulate"),
    "What happened": (
        *("events", "violators", "near-limits", "utilisation", "endpoints", "metrics", "usage", "changes"),
    ),
    "Look after it": ("doctor", "tokens", "db", "backup", "restore", "archive", "migrate", "completion"),
}
"""The help shows commands by what they are about, in this order."""
_SUBJECT_OF: Final = {name: subject for subject, names in SUBJECTS.items() for name in names}


class _BySubject(TyperGroup):
    """Names commands in the order of their subjects."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401 (typer's own click)
        return [name for name in _SUBJECT_OF if name in super(_BySubject, self).list_commands(ctx)]


def application(words: Sequence[str] | None = None) -> typer.Typer:
    """The command line: complete, or, with the words of a command, with what this command needs."""
    app = typer.Typer(
        name="headgate",
        help="A rate limiter: the decision service, and commands for its rules, users and limits.",
        epilog=epilog(""),
        no_args_is_help=True,
        add_completion=False,
        cls=_BySubject,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_headgate)
    first = words[0] if words else None
    is_known = first in VERBS or first in GROUPS
    for name, verb in VERBS.items():
        if words is None or name == first:
            function = verb.load()
            app.command(name, help=flowing(function), rich_help_panel=_SUBJECT_OF[name], epilog=epilog(name))(function)
        elif not is_known:
            app.command(name, help=verb.help(), rich_help_panel=_SUBJECT_OF[name])(_only_named)
    for name, group in GROUPS.items():
        if words is None or name == first:
            app.add_typer(_loaded(name, group, words), rich_help_panel=_SUBJECT_OF[name])
        elif not is_known:
            meaning = group.help if group.itself is None else group.itself.help()
            empty = typer.Typer(name=name, help=meaning, callback=_only_named)
            app.add_typer(empty, rich_help_panel=_SUBJECT_OF[name])
    return app


def _loaded(name: str, group: Group, words: Sequence[str] | None) -> typer.Typer:
    """A group with all of its verbs, or with the one that is called."""
    options: dict[str, Any] = {"help": group.help, "no_args_is_help": True}
    if group.itself is not None:
        itself = group.itself.load()
        options = {"help": flowing(itself), "invoke_without_command": True, "callback": itself}
    app = typer.Typer(name=name, epilog=epilog(name), **options)
    called = words[1] if words is not None and len(words) > 1 else None
    for word, verb in group.verbs.items():
        if called not in group.verbs or called == word:
            function = verb.load()
            app.command(word, help=flowing(function))(function)
    return app


def _only_named() -> None:
    """Stand for a verb in an overview."""


def _show_version(value: bool) -> None:  # noqa: FBT001 (as typer calls it)
    if value:
        typer.echo(f"headgate {__version__}")
        raise typer.Exit


def _headgate(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that stand before any verb."""


def run(arguments: list[str]) -> int:
    """Run a command and return its exit code. Every failure is a sentence on standard error, never a traceback."""
    try:
        code = int(application(_words(arguments))(arguments, prog_name="headgate", standalone_mode=False) or 0)
        sys.stdout.flush()
        return code  # noqa: TRY300 (flushing can fail too)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 (whatever it is, people get a sentence)
        return report(error)


def _words(arguments: list[str]) -> list[str]:
    """The words of the command: those that were given, or those that a shell wants to be completed."""
    words = words_to_complete()
    if words is None:
        return arguments
    completion_init()
    return words
