"""The reference of the admin API names every endpoint with its role, and no other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from fastapi.routing import APIRoute

from headgate.edge.admin.access import OPEN, ROLES
from headgate.edge.admin.app import admin_app

if TYPE_CHECKING:
    from pathlib import Path

_NO_SERVICES: Any = None
"""The description needs no services."""


def _page(root: Path) -> str:
    return (root / "docs/reference/admin-api.md").read_text(encoding="utf-8")


def test_every_endpoint_is_documented_with_its_role(root: Path) -> None:
    """The table has every endpoint of the application with the role that it needs."""
    rows = re.findall(r"^\| `([A-Z]+ /[^`]+)` \| `?(\w+)`? \| .+ \|$", _page(root), re.MULTILINE)
    roles = {endpoint: role.value for endpoint, role in ROLES.items()} | dict.fromkeys(OPEN, "none")
    assert len(rows) == len(dict(rows))
    assert dict(rows) == roles
    offered = {
        f"{method} {route.path_format}"
        for route in admin_app(_NO_SERVICES).routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert offered == set(dict(rows))


def test_every_query_parameter_is_documented(root: Path) -> None:
    """Every query parameter is on the page, as code."""
    spans = set(re.findall(r"[\w-]+", " ".join(re.findall(r"`([^`\n]+)`", _page(root)))))
    described = admin_app(_NO_SERVICES).openapi()
    for path, methods in described["paths"].items():
        for operation in methods.values():
            for parameter in operation.get("parameters", []):
                assert parameter["in"] == "path" or {parameter["name"], parameter["name"].title()} & spans, (
                    path,
                    parameter,
                )


def test_every_operation_is_described_with_an_example() -> None:
    """Each operation has a name, a sentence and its answers, and bodies have examples."""
    described = admin_app(_NO_SERVICES).openapi()
    schemas = described["components"]["schemas"]
    operations = [operation for methods in described["paths"].values() for operation in methods.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations) == len(ROLES) + 2
    for operation in operations:
        assert operation["description"]
        assert operation["tags"]
        for content in operation.get("requestBody", {}).get("content", {}).values():
            schema = content["schema"]
            reference = schema.get("$ref") or next(
                (each["$ref"] for each in schema.get("anyOf", []) if "$ref" in each), ""
            )
            named = schemas.get(reference.rpartition("/")[2], schema)
            assert named.get("examples") or content.get("examples"), operation["operationId"]
