"""Examples at the end of the help: what to type, by command, and what it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "": (
        ("make it run", "headgate serve --rules rules.yaml"),
        ("ask it", "headgate check --user u1 --method GET --path /api/search"),
        ("see what happens", "headgate top"),
        ("find what is wrong", "headgate doctor"),
    ),
    "serve": (
        ("with rules from a file", "headgate serve --rules rules.yaml"),
        ("with a database and an admin API", "headgate serve --database embedded://"),
    ),
    "gateway": (
        ("in front of an application", "headgate gateway --upstream http://127.0.0.1:9000 --rules rules.yaml"),
    ),
    "demo": (("more traffic, and a month of the past", "headgate demo --rate 100 --days 30"),),
    "check": (("a request, counted if it passes", "headgate check --user u1 --method GET --path /api/search"),),
    "peek": (("the same without counting", "headgate peek --user u1 --method GET --path /api/search"),),
    "explain": (("which rules apply, and why", "headgate explain --user u1 --method GET --path /api/search"),),
    "quota": (("what a user has left", "headgate quota u1"),),
    "top": (
        ("every five seconds", "headgate top --interval 5"),
        ("for a program", "headgate top --json"),
    ),
    "status": (("for a script", "headgate status --json"),),
    "doctor": (
        ("as the service would be started", "headgate doctor --rules rules.yaml --database embedded://"),
        ("for a program", "headgate doctor --json"),
    ),
    "rules": (
        ("check a file before it is used", "headgate rules validate rules.yaml"),
        ("see what it would change", "headgate rules plan rules.yaml"),
        ("change it", "headgate rules apply rules.yaml"),
    ),
    "tiers": (("a new plan", "headgate tiers set pro --limit search=1000/hour"),),
    "users": (("more for one user", "headgate users override u1 search 500/hour"),),
    "keys": (("a key, shown once", "headgate keys create --user u1 --name app"),),
    "blocks": (("for an hour", "headgate blocks add --network 203.0.113.0/24 --until 1h"),),
    "events": (("who was denied lately", "headgate events --decision denied --limit 20"),),
    "violators": (("as JSON", "headgate violators --json"),),
    "completion": (("in bash, from now on", 'eval "$(headgate completion bash)"'),),
}


def epilog(name: str) -> str | None:
    """The end of a command's help; None without examples. An empty line keeps each example on a line of its own."""
    examples = EXAMPLES.get(name)
    if examples is None:
        return None
    return "\n\n".join(["Examples:", *(f"  {command}   ({purpose})" for purpose, command in examples)])
