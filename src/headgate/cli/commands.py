"""All verbs together, and how they end.

A verb returns its exit code: 0 is fine, 1 is failed, 2 is a denial (`check`, `peek`, `explain`)
or a difference (`rules plan`, `db status`, `usage reconcile`). So usage errors, which are 2 elsewhere, are 1 here.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from headgate import __version__
from headgate.cli import (
    activity,
    analytics,
    archive,
    backup,
    blocks,
    bulk_load,
    check,
    db,
    explain,
    gateway,
    keys,
    processes,
    quota,
    rules,
    serve,
    simulate,
    stored_rules,
    tiers,
    tokens,
    usage,
    users,
)
from headgate.cli.output import complain, counted, give_up_output
from headgate.errors import HeadgateError, InvalidFields, InvalidRules

FAILED = 1
INTERRUPTED = 130
# Typer exports this class in no version, and keeps it in another place since it no longer needs click.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="headgate",
    help="A rate limiter: a service that decides, and commands to ask it and to look after its rules.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("gateway")(gateway.gateway)
app.command("check")(check.check)
app.command("peek")(check.peek)
app.command("explain")(explain.explain)
app.command("simulate")(simulate.simulate)
app.command("quota")(quota.quota)
app.command("processes")(processes.processes)
app.command("changes")(activity.changes)
app.command("violators")(activity.violators)
app.command("near-limits")(analytics.near_limits)
app.command("utilisation")(analytics.utilisation)
app.command("endpoints")(analytics.endpoints)
app.command("metrics")(analytics.metrics)
app.command("restore")(backup.restore)


def _add_group(name: str, meaning: str, verbs: Mapping[str, Callable[..., object]]) -> None:
    group = typer.Typer(name=name, help=meaning, no_args_is_help=True)
    for verb, function in verbs.items():
        group.command(verb)(function)
    app.add_typer(group)


def _add_verb_with_more(name: str, verb: Callable[..., object], more: Mapping[str, Callable[..., object]]) -> None:
    """A verb that does something by itself, and has others below it."""
    group = typer.Typer(name=name, invoke_without_command=True, callback=verb)
    for word, function in more.items():
        group.command(word)(function)
    app.add_typer(group)


_add_verb_with_more("events", activity.events, {"show": activity.show_event})
_add_verb_with_more("backup", backup.backup, {"list": backup.list_backups, "verify": backup.verify})
_add_verb_with_more("usage", usage.usage, {"export": usage.export, "reconcile": usage.reconcile})
_add_group(
    "rules",
    "Look after rules: in files, in force, and as they were.",
    {
        "validate": rules.validate,
        "plan": rules.plan,
        "apply": rules.apply,
        "sync": rules.sync,
        "dump": stored_rules.dump,
        "history": stored_rules.history,
        "rollback": stored_rules.rollback,
        "enable": stored_rules.enable,
        "disable": stored_rules.disable,
        "import": stored_rules.import_rules,
        "schema": stored_rules.schema,
    },
)
_add_group(
    "tiers",
    "The plans that users are on.",
    {"list": tiers.list_tiers, "show": tiers.show, "set": tiers.set_tier, "delete": tiers.delete},
)
_add_group(
    "users",
    "Who there is, on which tier, with which limits of their own.",
    {
        "list": users.list_users,
        "show": users.show,
        "set": users.set_user,
        "delete": users.delete,
        "override": users.override,
        "load": bulk_load.load_users,
        "story": activity.story,
    },
)
_add_group(
    "keys",
    "API keys: shown once, stored as a hash.",
    {
        "list": keys.list_keys,
        "show": keys.show,
        "create": keys.create,
        "rotate": keys.rotate,
        "revoke": keys.revoke,
        "load": bulk_load.load_keys,
    },
)
_add_group(
    "blocks",
    "Users, keys and networks that are shut out.",
    {"list": blocks.list_blocks, "add": blocks.add, "remove": blocks.remove},
)
_add_group(
    "tokens",
    "Who may use the admin API, and for what.",
    {"list": tokens.list_tokens, "create": tokens.create, "revoke": tokens.revoke},
)
_add_group("db", "Look after the database.", {"migrate": db.migrate, "status": db.status})
_add_group(
    "archive",
    "Events of past months, in files.",
    {
        "run": archive.run,
        "list": archive.list_archives,
        "query": archive.query,
        "restore": archive.restore,
    },
)


def _show_version(value: bool) -> None:  # noqa: FBT001 (as typer calls it)
    if value:
        typer.echo(f"headgate {__version__}")
        raise typer.Exit


@app.callback()
def _headgate(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Options that stand before any verb."""


def run(arguments: list[str]) -> int:
    """Carry out a command and return its exit code. Whatever happens, people get a sentence and no traceback."""
    try:
        code = int(app(arguments, standalone_mode=False) or 0)
        sys.stdout.flush()
        return code  # noqa: TRY300 (flushing can fail too)
    except UsageError as error:
        sentence = error.format_message()  # type: ignore[attr-defined] # see above
        # Without arguments typer has shown the help already, and has nothing to add.
        if sentence:
            complain(f"{sentence} (see headgate --help)")
    except InvalidRules as error:
        complain(f"the rules are refused, for {counted(len(error.lines), 'problem')}:", *error.lines)
    except InvalidFields as error:
        first, *more = map(str, error.problems)
        if more:
            complain(f"that is refused, for {counted(len(error.problems), 'problem')}:", first, *more)
        else:
            complain(first)
    except HeadgateError as error:
        complain(str(error))
    except BrokenPipeError:
        give_up_output()
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 (a bug; even then people get a sentence)
        complain(f"this is a bug in headgate: {type(error).__name__}: {error}")
    return FAILED
