"""The dashboard's files, read once from the package, and the headers that a browser gets with them."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from headgate.edge.problems import HttpProblem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from starlette.requests import Request
    from starlette.routing import BaseRoute

ROOT: Final = "/ui/"
_INDEX: Final = "index.html"
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
"""A page loads only what this server has. No text becomes a script or markup: browsers that know trusted types refuse
every way to do that."""
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    # The file is asked for again each time, and answered with 304 unless the version is another one.
    "cache-control": "no-cache",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class _File(NamedTuple):
    body: bytes
    media_type: str
    tag: str


def dashboard_routes() -> list[BaseRoute]:
    """The routes of the pages, for everyone: what they show needs a session."""
    return [Route("/", _to_the_pages), Route("/ui", _to_the_pages), Route(ROOT + "{path:path}", _file)]


@cache
def static_files() -> dict[str, _File]:
    """All files by their path below `ROOT`."""
    return dict(_read(files("headgate.edge.dashboard").joinpath("static"), ""))


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, _File]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _read(each, f"{prefix}{each.name}/")
        elif (media_type := _TYPES.get(each.name.rpartition(".")[2])) is not None:
            body = each.read_bytes()
            yield f"{prefix}{each.name}", _File(body, media_type, f'"{sha256(body).hexdigest()[:16]}"')


async def _to_the_pages(_request: Request) -> Response:
    return RedirectResponse(ROOT, HTTPStatus.TEMPORARY_REDIRECT)


async def _file(request: Request) -> Response:
    found = static_files().get(request.path_params["path"] or _INDEX)
    if found is None:
        raise HttpProblem(HTTPStatus.NOT_FOUND, f"the dashboard has no such file; it begins at {ROOT}")
    headers = {**_HEADERS, "etag": found.tag}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(found.body, headers=headers, media_type=found.media_type)
