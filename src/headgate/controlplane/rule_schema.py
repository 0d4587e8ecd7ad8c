"""The JSON Schema of rules files, for editors."""

from __future__ import annotations

from typing import Any, Final

from headgate.core.failure_policy import OnOverload, OnShortfall, OnStoreError
from headgate.core.meter import Algorithm
from headgate.core.parsing.fields import NAME
from headgate.core.parsing.match import METHOD
from headgate.core.rule import PER_ORDER, Action
from headgate.core.shards import MAX_SHARDS
from headgate.core.spread import SPREAD_WORDS, RegionMode
from headgate.core.units import MAX_AMOUNT

_PER: Final = "|".join(PER_ORDER)
_METHOD: Final = METHOD.pattern
_TEXT: Final = {"type": "string", "minLength": 1}
_NAME: Final = {"type": "string", "pattern": f"^{NAME.pattern}$"}
_AMOUNT: Final = {"type": "integer", "minimum": 0, "maximum": MAX_AMOUNT}
_DURATION: Final = {
    "description": "A span of time: 2s, 5 minutes, or a number of seconds.",
    "anyOf": [{"type": "string", "pattern": r"^\s*[0-9]"}, {"type": "number", "minimum": 0}],
}
_RATE: Final = r"[0-9]+(_[0-9]+)* *(/| [Pp][Ee][Rr]\b| [Cc][Oo][Nn][Cc][Uu][Rr][Rr][Ee][Nn][Tt]\b)"
_UNLIMITED: Final = r"[Uu][Nn][Ll][Ii][Mm][Ii][Tt][Ee][Dd]\s*$"
_LIMIT: Final = {
    "type": "string",
    "maxLength": 200,
    "pattern": rf"^\s*({_RATE}|{_UNLIMITED})",
    "examples": ["100/minute", "60/minute burst 10", "5 per 10 minutes", "3 concurrent ttl 30s", "unlimited"],
}


def rule_schema() -> dict[str, Any]:
    """The schema (2020-12). What it cannot say, such as what goes together, `headgate rules validate` does."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rules of headgate",
        "description": "Rules, tiers and overrides; a list alone is a list of rules.",
        "anyOf": [{"$ref": "#/$defs/rule_set"}, {"$ref": "#/$defs/rules"}],
        "$defs": {
            "limit": _LIMIT,
            "limits": {"anyOf": [{"$ref": "#/$defs/limit"}, _list({"$ref": "#/$defs/limit"}, most=8)]},
            "rules": {"type": "array", "items": {"$ref": "#/$defs/rule"}},
            "rule_set": _mapping(
                tiers=_named(_optional({"$ref": "#/$defs/tier"}), "Plans that callers are on."),
                default_tier=_said(_TEXT, "The tier of callers without a known one; by default the first."),
                rules={"$ref": "#/$defs/rules"},
                overrides={"type": "array", "items": {"$ref": "#/$defs/override"}},
                **_spelling("for rules that do not say"),
            ),
            "tier": _mapping(
                price={"type": "number", "minimum": 0, "maximum": 1e12},
                limits=_named({"$ref": "#/$defs/limits"}, "Limits that rules name by tier:NAME."),
                display_name=_TEXT,
            ),
            "override": _override(),
            "rule": _rule(),
        },
    }


def _override() -> dict[str, Any]:
    override = _mapping(rule=_NAME, user=_TEXT, api_key=_TEXT, limits={"$ref": "#/$defs/limits"})
    return override | {"required": ["rule", "limits"], "oneOf": [{"required": ["user"]}, {"required": ["api_key"]}]}


def _rule() -> dict[str, Any]:
    rule = _mapping(
        name=_NAME,
        layer={
            "description": "Of each layer one rule applies, the best match. By default made of `per` and `match`.",
            "type": "string",
            "pattern": "^[A-Za-z0-9_.:+@/-]{1,200}$",
        },
        match=_match(),
        per=_several(
            {"type": "string", "pattern": f"^({_PER}|attribute:{NAME.pattern})$"}, "What is counted for each."
        ),
        limits=_said(
            {"anyOf": [{"type": "string", "pattern": r"^tier:\s*\S"}, {"$ref": "#/$defs/limits"}]},
            "One limit, up to eight, or tier:NAME for the caller's tier's.",
        ),
        algorithm=_word(Algorithm, "How it is counted; sliding_window_counter if nothing is said."),
        cost=_cost(),
        action=_word(Action, "What happens to a request over the limit; allow and block take no limits."),
        max_delay=_said(_DURATION, "How long a throttled request may be held; 2s if nothing is said."),
        on_store_error=_word(OnStoreError, "What holds while the counters cannot be reached."),
        on_overload=_word(OnOverload, "What becomes of a check while too much is in flight; wait if nothing is said."),
        spread=_spread(),
        wait_replicas=_said(
            {"type": "integer", "minimum": 0, "maximum": 100},
            "How many replicas must have a count before the answer.",
        ),
        on_shortfall=_word(OnShortfall, "What happens if fewer replicas have it; mark if nothing is said."),
        sample={"type": "number", "minimum": 0, "maximum": 1},
        priority=_said(
            {"type": "integer", "minimum": -1_000_000, "maximum": 1_000_000}, "The lowest wins inside a layer."
        ),
        response=_mapping(
            status={"type": "integer", "minimum": 400, "maximum": 599},
            message=_TEXT | {"maxLength": 1_000},
            retry_after=_DURATION,
        ),
        enabled={"type": "boolean"},
        id=_said(_NAME, "What counters and records are kept under, also when the name changes. By default the name."),
    )
    rule["properties"]["name"] = _said(_NAME, "Unique, whatever the letter case; also the policy's name in headers.")
    gate = {"properties": {"action": {"enum": ["allow", "block"]}}, "required": ["action"]}
    limited = {"required": ["limits"], "properties": {"limits": {"not": {"type": "null"}}}}
    unlimited = {"properties": {"limits": {"type": "null"}}}
    return rule | {"required": ["name"], "if": gate, "then": unlimited, "else": limited}


def _match() -> dict[str, Any]:
    match = _mapping(
        endpoints=_several(
            {"type": "string", "pattern": "^/", "examples": ["/api/search", "/users/{id}", "/files/*"]}, "Paths."
        ),
        methods=_several({"type": "string", "pattern": f"^{_METHOD}$"}, "HTTP methods; GET includes HEAD."),
        tiers=_several(_TEXT, "Names of tiers."),
        ip_ranges=_several({"type": "string", "pattern": "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$"}, "Addresses and networks."),
        attributes={"type": "object", "additionalProperties": {"type": "string"}},
        **_spelling("by default as the rule set says"),
    )
    return _said(match, "Which requests the rule concerns; all if nothing is said.")


def _spelling(default: str) -> dict[str, dict[str, Any]]:
    flag = {"type": "boolean"}
    return {
        "case_sensitive": _said(flag, f"Whether /api and /API are two paths; {default}."),
        "strip_parameters": _said(flag, f"Whether /api;v=1 is /api; {default}."),
    }


def _cost() -> dict[str, Any]:
    by_method = {"type": "object", "propertyNames": {"pattern": f"^{_METHOD}$"}, "additionalProperties": _AMOUNT}
    return _said({"anyOf": [_AMOUNT, by_method]}, "What a request costs: a number, or one by method and default.")


def _spread() -> dict[str, Any]:
    shards = _mapping(shards={"type": "integer", "minimum": 1, "maximum": MAX_SHARDS}) | {"required": ["shards"]}
    share = {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_AMOUNT}
    regions = _mapping(
        regions=_word(RegionMode, "How regions share the limit."),
        home=_said(_NAME, "For central and borrow: the region where it is counted."),
        shares=_named(share, "For split and gossip: whole numbers, or fractions that add up to 1."),
    ) | {"required": ["regions"]}
    return _said({"anyOf": [{"enum": list(SPREAD_WORDS)}, shards, regions]}, "Where the parts of a limit are held.")


def _mapping(**properties: dict[str, Any]) -> dict[str, Any]:
    """A mapping with these fields, any of which may be null."""
    fields = {name: _optional(schema) for name, schema in properties.items()}
    return {"type": "object", "additionalProperties": False, "properties": fields}


def _optional(schema: dict[str, Any]) -> dict[str, Any]:
    """Null is the same as nothing. The description stays outside, where editors look for it."""
    outside = {name: schema[name] for name in ("description", "examples") if name in schema}
    inside = {name: value for name, value in schema.items() if name not in outside}
    return outside | {"anyOf": [inside, {"type": "null"}]}


def _named(schema: dict[str, Any], description: str) -> dict[str, Any]:
    """Things by names of the author's choosing."""
    names = {"pattern": _NAME["pattern"]}
    return {
        "description": description,
        "type": "object",
        "propertyNames": names,
        "additionalProperties": schema,
    }


def _several(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "anyOf": [schema, _list(schema)]}


def _list(schema: dict[str, Any], most: int | None = None) -> dict[str, Any]:
    return {"type": "array", "minItems": 1, "items": schema} | ({} if most is None else {"maxItems": most})


def _word(
    words: type[Algorithm | Action | OnStoreError | OnOverload | OnShortfall | RegionMode], description: str
) -> dict[str, Any]:
    return {"description": description, "enum": [word.value for word in words]}


def _said(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description} | schema
