"""Kong's plugin `rate-limiting` as rules: from its declarative configuration, as fixed windows like there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headgate.controlplane.imported_rules import ImportedRules, layer
from headgate.errors import InvalidFields, Problem
from headgate.migrate.moved import Moved, Note, notes_in_order, rules_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_PLUGIN: Final = "rate-limiting"
_PERIODS: Final = {"second": "second", "minute": "minute", "hour": "hour", "day": "day"}
_LONG: Final = {"month": "30 days", "year": "365 days"}
_PER: Final = {"consumer": "user", "credential": "api_key", "ip": "ip", "service": "global", "path": "endpoint"}
_KNOWN: Final = {*_PERIODS, *_LONG, "limit_by", "error_code", "error_message", "header_name", "path"}
_ALL_APPLY: Final = (
    "Kong applies only the most specific plugin to a request; here all rules that match apply, so a narrower rule adds "
    "to a wider one"
)
_POLICIES: Final = {"policy", "redis", "sync_rate", "namespace"}


def move_kong(data: Mapping[str, Any]) -> Moved:
    """Rules for every `rate-limiting` of a declarative configuration."""
    made, notes = ImportedRules(), list[Note]()
    for plugin, words, match in _plugins(data):
        if plugin.get("name") == _PLUGIN and plugin.get("enabled", True) is True:
            _add(plugin, words, match, made, notes)
        elif plugin.get("name") != _PLUGIN:
            notes.append(Note(0, f"the plugin {plugin.get('name')} at {words} is not carried over"))
    rules, more = made.finish()
    if not rules["rules"]:
        raise InvalidFields([Problem((), f"no plugin {_PLUGIN} is enabled in this configuration")])
    notes.append(Note(0, _ALL_APPLY))
    return Moved("kong", rules_text(rules), notes_in_order([*notes, *(Note(0, each) for each in more)]))


def _plugins(data: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str, dict[str, Any]]]:
    """Every plugin, what it is called after, and the requests that it is for."""
    routes = {route.get("name"): route for route in _routes(data)}
    services = {service.get("name"): service for service in _list(data, "services")}
    for plugin in _list(data, "plugins"):
        if plugin.get("route") in routes:
            yield plugin, str(plugin["route"]), _match([routes[plugin["route"]]])
        elif plugin.get("service") in services:
            yield plugin, str(plugin["service"]), _match(_list(services[plugin["service"]], "routes"))
        else:
            yield plugin, "kong", {}
    for service in services.values():
        for plugin in _list(service, "plugins"):
            yield plugin, str(service.get("name")), _match(_list(service, "routes"))
    for route in _routes(data):
        for plugin in _list(route, "plugins"):
            yield plugin, str(route.get("name")), _match([route])


def _routes(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*_list(data, "routes"), *(route for each in _list(data, "services") for route in _list(each, "routes"))]


def _list(data: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = data.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _match(routes: list[Mapping[str, Any]]) -> dict[str, Any]:
    paths = [str(path).rstrip("/") for route in routes for path in route.get("paths") or ["/"]]
    methods = sorted({str(method) for route in routes for method in route.get("methods") or ["*"]})
    match: dict[str, Any] = {}
    if all(paths):
        match["endpoints"] = [pattern for path in dict.fromkeys(paths) for pattern in (path, f"{path}/*")]
    if "*" not in methods and methods:
        match["methods"] = methods
    return match


def _add(plugin: Mapping[str, Any], words: str, match: dict[str, Any], made: ImportedRules, notes: list[Note]) -> None:
    given = plugin.get("config")
    config: dict[str, Any] = given if isinstance(given, dict) else {}
    periods = {**_PERIODS, **_LONG}
    limits = [f"{config[unit]}/{period}" for unit, period in periods.items() if config.get(unit) is not None]
    if not limits:
        made.problems.append(Problem((), f"the plugin {_PLUGIN} at {words} has no limit: second, minute, hour, day …"))
        return
    notes += [
        Note(0, f"{words}: a {unit} is {period} here; for one of the calendar write 'calendar {unit}'")
        for unit, period in _LONG.items()
        if config.get(unit) is not None
    ]
    by = str(config.get("limit_by", "consumer"))
    per = f"attribute:{config.get('header_name')}" if by == "header" else _PER.get(by, "ip")
    if by == "header":
        notes.append(Note(0, f"{words}: send the header {config.get('header_name')} as an attribute of that name"))
    if plugin.get("consumer") is not None:
        notes.append(Note(0, f"{words}: the limit of one consumer becomes one of all; use an override for that user"))
    response: dict[str, Any] = {"status": config.get("error_code", 429)}
    if config.get("error_message"):
        response["message"] = config["error_message"]
    unknown = sorted(set(config) - _KNOWN - _POLICIES)
    notes += [Note(0, f"{words}: {name} is not carried over") for name in unknown]
    rule: dict[str, Any] = {"per": [per], "limits": limits, "algorithm": "fixed_window", "response": response}
    made.add((), words, rule | ({"match": match} if match else {}) | {"layer": layer(f"kong:{words}:{per}")})
