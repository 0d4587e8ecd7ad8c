"""Request paths: one spelling each, so that no spelling reaches a resource around its rule."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_ABSOLUTE_FORM: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\]*")
_PLAIN: Final = re.compile(r"(?:/[A-Za-z0-9_~!$&'()*+,;=:@-]+)+")


def normalise_path(path: str) -> str:
    """Bring a path to its one spelling.

    The query is cut off, percent-encoding is undone once, backslashes count as slashes,
    dot segments are resolved and double and trailing slashes removed:
    ``/api//v1/./x/%2e%2e/search/?q=1`` is ``/api/v1/search``. Letter case is kept, and so
    is what follows a ``;``, which to most servers is a letter like any other.
    """
    if _PLAIN.fullmatch(path):
        return path
    if found := _ABSOLUTE_FORM.match(path):
        path = path[found.end() :]
    path = path.partition("?")[0].partition("#")[0]
    # Bytes that are not UTF-8 stay apart from each other, as lone surrogates.
    path = unquote(path, errors="surrogateescape").replace("\\", "/")
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == "..":
            if segments:
                segments.pop()
        elif segment not in {"", "."}:
            segments.append(segment)
    return "/" + "/".join(segments)
