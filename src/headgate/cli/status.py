"""`headgate status`: what runs, where, since when, in which state, and by which rules."""

import json
from typing import Any

from rich.text import Text as Styled

from headgate.cli.admin_client import admin_settings, at, open_client
from headgate.cli.exchange import call_http
from headgate.cli.options import Json, Token, Url
from headgate.cli.output import counted, moment, print_fields, print_json, print_rows
from headgate.cli.running_service import of_running_service
from headgate.cli.top_screen import PARTS, STATES
from headgate.errors import HeadgateError, InvalidSettings
from headgate.settings import Settings

BEHIND = 2
_SECONDS = 5.0
_READY = "ready"
_JOB_SETTINGS = "HEADGATE_ARCHIVE_DAILY, HEADGATE_BACKUP_DAILY and HEADGATE_BASE_BACKUP_FOLDER"


def status(url: Url = None, token: Token = None, *, as_json: Json = False) -> int:
    """Show what runs, where, since when and in which state: the service at HEADGATE_URL, its servers and processes.

    Exit code 0: all is well, 2: it is not ready or a process is behind, 1: no answer.
    """
    chosen = of_running_service(admin_settings(url, token))
    service = _service(chosen)
    control = _control(chosen)
    if as_json:
        print_json({"service": service, "control_plane": control})
    else:
        print_fields({"service": _service_line(service), **_control_lines(control)})
        _print_processes(control)
    if "reason" in service or (control is not None and "reason" in control):
        return 1
    return 0 if service["status"] == _READY and not _behind(control) else BEHIND


def _service(chosen: Settings) -> dict[str, Any]:
    """What /readyz of the decision service says."""
    try:
        answer = call_http(chosen.url, "GET", "/readyz", seconds=_SECONDS, hint="HEADGATE_URL says where it is")
        said = json.loads(answer.body)
        if not isinstance(said, dict) or "status" not in said:
            raise ValueError  # noqa: TRY301 (the same as what is no JSON)
    except HeadgateError as error:
        return {"url": chosen.url, "status": "no answer", "reason": str(error)}
    except ValueError:
        return {"url": chosen.url, "status": "no answer", "reason": f"{chosen.url} is no decision service of headgate"}
    return {"url": chosen.url, **said}


def _control(chosen: Settings) -> dict[str, Any] | None:
    """The newest rules and the processes, as the admin API or the database has them; None if there is neither."""
    try:
        with open_client(chosen) as client:
            newest = client.get(at("snapshots"), limit=1)["items"]
            return {
                "snapshot": newest[0] if newest else None,
                "processes": client.get(at("processes"))["items"],
                "jobs": client.get(at("jobs"))["items"],
                "overview": client.find(at("overview")),  # none where this command itself has read the database
            }
    except InvalidSettings as error:
        return None if chosen.admin_url is None else {"reason": str(error)}
    except HeadgateError as error:
        return {"reason": str(error)}


def _behind(control: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The processes that do not have the newest rules."""
    if control is None or control.get("snapshot") is None:
        return []
    return [each for each in control["processes"] if each["rules"] < control["snapshot"]["number"]]


def _service_line(service: dict[str, Any]) -> Styled:
    if "reason" in service:
        return Styled(service["reason"], "red")
    is_ready = service["status"] == _READY
    rules = f", snapshot {service['snapshot']}" if "snapshot" in service else ""
    source = f" from the {service['rules']}" if "rules" in service else ""
    return Styled.assemble(
        (str(service["status"]), "green" if is_ready else "red"), f" at {service['url']}{rules}{source}"
    )


def _control_lines(control: dict[str, Any] | None) -> dict[str, str | Styled | list[str]]:
    if control is None:
        return {"control plane": "none: no HEADGATE_ADMIN_URL, no HEADGATE_DATABASE_URL, no data directory"}
    if "reason" in control:
        return {"control plane": Styled(control["reason"], "red")}
    newest, processes, behind = control["snapshot"], control["processes"], _behind(control)
    rules = "none were published"
    if newest is not None:
        published = f"published {moment(newest['at'])} UTC by {newest['who']}"
        rules = f"{counted(newest['rules'], 'rule')}, snapshot {newest['number']}, {published}"
    have = f"{len(processes) - len(behind)} of {len(processes)} have the newest rules"
    late = [f"{each['host']}:{each['pid']} has snapshot {each['rules']}" for each in behind]
    jobs = [_job_line(job) for job in control["jobs"]]
    return {
        **_overview_lines(control.get("overview")),
        "rules": rules,
        "processes": [have, *late] if processes else "none runs on this database",
        "jobs": jobs or f"none has run; see {_JOB_SETTINGS}",
    }


def _job_line(job: dict[str, Any]) -> str:
    said = f": {job['detail']}" if job["detail"] else ""
    return f"{job['name']} {job['outcome']} {moment(job['began'])}, next {moment(job['next_run'])} UTC{said}"


def _overview_lines(overview: dict[str, Any] | None) -> dict[str, str | Styled | list[str]]:
    """The state of a running service, what it decides now, and what it stands on."""
    if overview is None:
        return {}
    reasons = "".join(f"; {each['part']}: {each['message']}" for each in overview["reasons"])
    state = Styled.assemble((overview["state"].replace("_", " "), STATES.get(overview["state"], "bold")), reasons)
    rates = ", ".join(f"{value:.1f} {name}" for name, value in overview["rates"].items() if value) or "no requests"
    times = overview["latency"]
    times_text = "" if times["p50"] is None else f"; p50 {times['p50'] * 1000:.1f} ms, p99 {times['p99'] * 1000:.1f} ms"
    health = Styled()
    for label, part in (("Redis", "redis"), ("PostgreSQL", "postgres"), ("Kafka", "kafka"), ("spool", "spool")):
        word = overview["health"][part]["state"]
        health.append(f"{label} ").append(word.replace("_", " "), PARTS.get(word, "")).append("  ")
    health.rstrip()
    return {"state": state, "per second": f"{rates}{times_text}", "stands on": health}


def _print_processes(control: dict[str, Any] | None) -> None:
    """A line for each process: where it runs, as what, since when, by which rules."""
    processes = [] if control is None else control.get("processes", [])
    if not processes:
        return
    headings = ("process", "role", "rules", "from", "blocks", "since (UTC)")
    rows = [
        (
            f"{each['host']}:{each['pid']}",
            each["role"],
            str(each["rules"]),
            each["rules_from"],
            str(each["blocks"]),
            moment(each["started"]),
        )
        for each in processes
    ]
    print_rows(headings, rows, whole=["process"], numbers=["rules", "blocks"])
