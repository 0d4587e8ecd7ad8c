"""Rule sets as YAML that people like to read, and that `headgate.adapters.yaml_text` reads back as the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from headgate.adapters import yaml_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_WIDTH: Final = 100
_ENDLESS: Final = 1_000_000
_ZERO: Final = "0\n"
_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc] # yaml has no types for it
    """Quotes texts that would be read as something else, or take several lines."""


def _represent(dumper: Any, text: str) -> Any:  # noqa: ANN401 (as above)
    is_plain = yaml_text.is_plain(text) and "\n" not in text
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


_Dumper.add_representer(str, _represent)


def write_rule_set(data: Mapping[str, Any]) -> str:
    """The text of a rules file: a line for each tier and each field of a rule, and blank lines between rules."""
    parts = []
    for name, value in data.items():
        if name == "tiers" and value:
            parts.append(f"{name}:\n" + "".join(_field(tier, body, "  ") for tier, body in value.items()))
        elif isinstance(value, list) and value:
            parts.append(f"{name}:\n" + "\n".join(map(_item, value)))
        else:
            parts.append(_field(name, value, ""))
    return "\n".join(parts)


def _item(value: object) -> str:
    """One entry of a list, with a line for each of its fields."""
    if not isinstance(value, dict) or not value:
        return f"  - {_dump(value, in_one_line=True)}"
    lines = "".join(_field(name, field, "    ") for name, field in value.items())
    return f"  - {lines.removeprefix('    ')}"


def _field(name: str, value: object, indent: str) -> str:
    """A name and its value, in one line if it fits."""
    if not isinstance(value, dict | list):
        return indent + _dump({name: value}, in_one_line=False)
    start = f"{indent}{_dump({name: 0}, in_one_line=False).removesuffix(_ZERO)}"
    line = start + _dump(value, in_one_line=True)
    if len(line) <= _WIDTH:
        return line
    # Only what is innermost stands in one line then.
    lines = _dump({name: value}, in_one_line=None).splitlines(keepends=True)
    return "".join(f"{indent}{line}" for line in lines)


def _dump(value: object, *, in_one_line: bool | None) -> str:
    width = _WIDTH if in_one_line is None else _ENDLESS
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, default_flow_style=in_one_line, width=width, allow_unicode=True
    )
    return text.removesuffix("...\n")
