"""Request paths: one spelling each, so that no spelling reaches a resource around its rule.

What servers read in different ways has several readings, and the rules of each apply.
"""

from __future__ import annotations

import re
from enum import IntEnum, auto
from string import hexdigits
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from headgate.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_PATH: Final = 8_192
"""Characters, as they were sent and without the query. Decoding a longer one takes milliseconds."""
_ABSOLUTE_FORM: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\]*")
_CHARACTERS: Final = {
    first + second: bytes.fromhex(first + second).decode("utf-8", "surrogateescape")
    for first in hexdigits
    for second in hexdigits
}
"""Characters by their two hexadecimal digits after a per cent sign; bytes beyond ASCII as surrogates."""
_PLAIN: Final = re.compile(r"(?:/(?!\.\.?(?:[/;]|$))[A-Za-z0-9_.~!$&'()*+,;=:@-]+)+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MAYBE_CONTROL: Final = re.compile(r"[%\x00-\x1f\x7f-\x9f]")
_PARAMETERS: Final = re.compile(r";[^/]*")
_ENCODED_SLASH: Final = re.compile(r"%2[Ff]")
_SLASH: Final = "\0"
"""Stands for an encoded slash while the rest is decoded. Control characters were refused before."""
_DOTS: Final = re.compile(r"/\.\.?(?:$|[/;])")
_AUTHORITY: Final = re.compile(r"^//+[^/]*")
_RAW_DOT: Final = re.compile(r"(?<=/)%2[Ee](?=/|$)")
_RAW_DOTS: Final = re.compile(r"(?<=/)(?:\.|%2[Ee]){2}(?=/|$)")


def normalise_path(path: str, *, strip_parameters: bool = False) -> str:
    """Bring a path to its one spelling.

    The query is cut off, percent-encoding is undone once, backslashes count as slashes,
    dot segments are resolved and double and trailing slashes removed:
    ``/api//v1/./x/%2e%2e/search/?q=1`` is ``/api/v1/search``. Letter case is kept, and so
    is what follows a ``;``, unless `strip_parameters` says otherwise. Raises `InvalidRequest`
    with the sentence of `path_problem`, if there is one.
    """
    return readings(path)[0].normal(strip_parameters=strip_parameters)


class Segments(IntEnum):
    """What a server makes of dot segments and of empty ones, as in ``/a//../b``."""

    RESOLVED = auto()
    """Empty ones are dropped, then dots resolved: ``/b``."""
    RESOLVED_FIRST = auto()
    """In the other order (RFC 3986, section 5.2.4): ``/a/b``."""
    DOTS_KEPT = auto()
    """Only empty ones are dropped: ``/a/../b``."""
    KEPT = auto()
    """Each is a segment like any other, as in most frameworks."""


class Reading(NamedTuple):
    """A path as one kind of server reads it: decoded, with the slashes that separate its segments."""

    path: str
    segments: Segments = Segments.RESOLVED
    is_normal: bool = False
    """Whether its segments have nothing to drop or to resolve."""

    def normal(self, *, strip_parameters: bool) -> str:
        """Normalised, with or without what follows a ``;`` in each segment."""
        path, segments, is_normal = self
        if strip_parameters and ";" in path:  # before dot segments: servers that have them take "..;x" for ".."
            path, is_normal = _PARAMETERS.sub("", path), False
        return path if is_normal else resolved(path, segments)


_RESOLVED: Final = Segments.RESOLVED
_new = tuple.__new__  # half the time of Reading(...)


def readings(path: str) -> tuple[Reading, ...]:
    """In which ways servers read a path; the first is that of `normalise_path`. Raises `InvalidRequest` as that does.

    A gateway passes ``/files/..%2Fx`` on as it came. To one back end that is ``/x``, to another something below
    ``/files``; and ``/items/a%5Cb`` is one item, or something below it. If only one of these counted, the other
    would be a way around its rule.
    """
    if is_too_long(path):
        raise InvalidRequest(_TOO_LONG)
    if _PLAIN.fullmatch(path):
        return (_new(Reading, (path, _RESOLVED, True)),)
    sent = without_query(path)
    decoded = percent_decoded(sent, "surrogateescape")
    if _CONTROL.search(decoded):
        raise InvalidRequest(_HAS_CONTROL)
    if "\\" in decoded or "#" in sent or "//" in decoded or "/." in decoded:
        return tuple(dict.fromkeys(_all_readings(sent)))
    first = _new(Reading, (decoded, _RESOLVED, False))
    if "%2" in sent and _ENCODED_SLASH.search(sent):
        return first, _new(Reading, (_with_slashes_in_segments(sent), _RESOLVED, False))
    return (first,)


def _all_readings(sent: str) -> Iterator[Reading]:
    path = sent.partition("#")[0]
    for text in dict.fromkeys((path, sent)):  # a fragment ends the path, or is a part of it
        for decoded in _decoded_both_ways(text):
            yield Reading(decoded.replace("\\", "/"))  # where a backslash separates, dots are resolved
            yield from (Reading(decoded, segments) for segments in _ways(decoded))
    if not ("%" in path or "\\" in path or "//" in path):
        return  # parsers of URLs see the same dots and slashes
    for text in _as_urls(path):
        for decoded in _decoded_both_ways(text):
            yield Reading(decoded, Segments.DOTS_KEPT)
            if "//" in decoded:
                yield Reading(decoded, Segments.KEPT)


def _as_urls(path: str) -> Iterator[str]:
    """What parsers of URLs make of a path before it is decoded: they see other dots and backslashes than do others."""
    found = []
    if "/." in path or "//" in path:
        found.append("/" + "/".join(_without_dots(filter(None, path.split("/")))))  # java.net.URI.normalize
    slashed = path.replace("\\", "/")
    for text in (slashed, _AUTHORITY.sub("", slashed) or "/"):  # ``//host/path`` has a host
        found.append(text)  # url.parse of Node
        dotted = _RAW_DOT.sub(".", _RAW_DOTS.sub("..", text))
        if "/." in dotted:
            found.append("/" + "/".join(_without_dots(dotted[1:].split("/"))))  # WHATWG, and Envoy's normalize_path
    return (text for text in dict.fromkeys(found) if text != path)


def _decoded_both_ways(text: str) -> Iterable[str]:
    """Decoded, with encoded slashes that separate, and with those that are a part of their segment."""
    decoded = percent_decoded(text, "surrogateescape")
    return (decoded, _with_slashes_in_segments(text)) if _ENCODED_SLASH.search(text) else (decoded,)


def _with_slashes_in_segments(text: str) -> str:
    return percent_decoded(_ENCODED_SLASH.sub(_SLASH, text), "surrogateescape").replace(_SLASH, "%2F")


def _ways(decoded: str) -> tuple[Segments, ...]:
    if not _DOTS.search(decoded):
        return (Segments.RESOLVED, Segments.KEPT) if "//" in decoded else (Segments.RESOLVED,)
    return tuple(Segments) if "//" in decoded else (Segments.RESOLVED, Segments.DOTS_KEPT)


def resolved(path: str, segments: Segments = Segments.RESOLVED) -> str:
    """A decoded path without double and trailing slashes and dot segments, except for those that are kept."""
    if segments is Segments.KEPT:
        return path
    parts: Iterable[str] = path.split("/")
    if segments is Segments.RESOLVED_FIRST:
        parts = _without_dots(parts)
    parts = filter(None, parts)
    return "/" + "/".join(_without_dots(parts) if segments is Segments.RESOLVED and "/." in path else parts)


def _without_dots(segments: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for segment in segments:
        if segment == "..":
            if kept:
                kept.pop()
        elif segment != ".":
            kept.append(segment)
    return kept


def without_query(path: str) -> str:
    """A path as it was sent, without scheme, host and query; it begins with a slash."""
    if found := _ABSOLUTE_FORM.match(path):
        path = path[found.end() :]
    path = path.partition("?")[0]
    return path if path[:1] == "/" else f"/{path}"


_TOO_LONG: Final = f"a path has at most {MAX_PATH} characters"
_HAS_CONTROL: Final = (
    "the path has a control character (such as %00, %09 or %0A), and servers disagree on what follows; leave it out"
)


def path_problem(path: str) -> str | None:
    """Why a path cannot be matched with rules, or None.

    A long one, cut short, could pass by the rule that it belongs to. With a control character it could too: to one
    server NUL ends the path, and a pattern that ends in ``$`` matches with a line feed after it.
    """
    if is_too_long(path):
        return _TOO_LONG
    if _MAYBE_CONTROL.search(path) and has_control(percent_decoded(without_query(path), "surrogateescape")):
        return _HAS_CONTROL
    return None


def has_control(decoded: str) -> bool:
    """Whether a decoded path has a control character: ASCII's, DEL, or those of Latin-1."""
    return _CONTROL.search(decoded) is not None


class Spelling(NamedTuple):
    """Which paths a back end takes for one, beyond what all do."""

    case_sensitive: bool = True
    strip_parameters: bool = False
    """Whether what follows a ``;`` in a segment is cut off: ``/api;v=1/search`` is ``/api/search``."""

    def of_reading(self, reading: Reading) -> str:
        """A path as one kind of server reads it, normalised, in the spelling that it is compared in."""
        path = reading.normal(strip_parameters=self.strip_parameters)
        return path if self.case_sensitive else path.casefold()

    def of_pattern(self, pattern: str) -> str:
        """A canonical pattern in the same spelling."""
        return pattern if self.case_sensitive else pattern.casefold()


PLAIN: Final = Spelling()


def is_too_long(path: str) -> bool:
    """Whether a path cannot be matched with rules because of its length; its query does not count."""
    return len(path) > MAX_PATH and len(path.partition("?")[0]) > MAX_PATH


def percent_decoded(path: str, errors: str) -> str:
    """What `urllib.parse.unquote` returns, in less time, above all where per cent signs encode nothing."""
    if "%" not in path:
        return path
    first, *others = path.split("%")
    pieces = [first]
    for piece in others:
        character = _CHARACTERS.get(piece[:2])
        pieces.append("%" + piece if character is None else character + piece[2:])
    decoded = "".join(pieces)
    if decoded.isascii():
        return decoded
    try:
        return decoded.encode("utf-8", "surrogateescape").decode("utf-8", errors)
    except UnicodeEncodeError:  # it has surrogates of its own, as no request has that came over a network
        return unquote(path, errors=errors)
