"""Endpoint patterns: ``/api/search`` (exact), ``/users/{id}/posts`` (template), ``/api/v1/*`` (prefix).

Request paths: one spelling each, so that no spelling reaches a resource around its rule. What servers read in
different ways has several readings, and the rules of each apply.
"""

from __future__ import annotations

import re
from enum import IntEnum, auto
from string import hexdigits
from typing import Final, NamedTuple
from urllib.parse import unquote

from headgate.errors import InvalidRequest, short_repr

MAX_PATH: Final = 8_192
"""Characters, as they were sent and without the query. Decoding a longer one takes milliseconds."""
_ABSOLUTE_FORM: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\]*")
_CHARACTERS: Final = {
    first + second: bytes.fromhex(first + second).decode("utf-8", "surrogateescape")
    for first in hexdigits
    for second in hexdigits
}
"""By what follows a per cent sign; bytes beyond ASCII as surrogates."""
_PLAIN: Final = re.compile(r"(?:/(?!\.\.?(?:[/;]|$))[A-Za-z0-9_.~!$&'()*+,;=:@-]+)+")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_MAYBE_CONTROL: Final = re.compile(r"[%\x00-\x1f\x7f-\x9f]")
_PARAMETERS: Final = re.compile(r";[^/]*")
_ENCODED_SLASH: Final = re.compile(r"%2[Ff]")
_AMBIGUOUS: Final = re.compile(r"[\\#]|%(?:2[Ff]|5[Cc])|(?:^|/)(?:\.|%2[Ee]){1,2}(?:$|[/;]|%3[Bb])")
"""In a path without its query: what a server may take as a part of a segment, or as something that ends one."""
_DOTS: Final = re.compile(r"(?:^|/)\.\.?(?:$|[/;])")
_SLASH: Final = "\0"
"""Stands for an encoded slash while the rest is decoded. Control characters were refused before."""


def normalise_path(path: str, *, strip_parameters: bool = False) -> str:
    """Bring a path to its one spelling.

    The query is cut off, percent-encoding is undone once, backslashes count as slashes,
    dot segments are resolved and double and trailing slashes removed:
    ``/api//v1/./x/%2e%2e/search/?q=1`` is ``/api/v1/search``. Letter case is kept, and so
    is what follows a ``;``, unless `strip_parameters` says otherwise. Raises `InvalidRequest`
    with the sentence of `path_problem`, if there is one.
    """
    return Spelling(strip_parameters=strip_parameters).of_path(path)


class Dots(IntEnum):
    """What a server makes of dot segments."""

    RESOLVED = auto()
    RESOLVED_FIRST = auto()
    """Before double slashes are merged, so that ``/a//../b`` is ``/a/b`` (RFC 3986, section 5.2.4), not ``/b``."""
    KEPT = auto()
    """Nothing: ``..`` is a segment like any other, as in most frameworks."""


class Reading(NamedTuple):
    """A path as one kind of server reads it: decoded, with the slashes that separate its segments."""

    path: str
    dots: Dots = Dots.RESOLVED
    is_normal: bool = False
    """Whether its segments have nothing to resolve."""


_RESOLVED: Final = Dots.RESOLVED
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
    sent = _without_query(path)
    decoded = percent_decoded(sent.partition("#")[0], "surrogateescape")
    if _CONTROL.search(decoded):
        raise InvalidRequest(_HAS_CONTROL)
    first = Reading(decoded.replace("\\", "/"))
    if not _AMBIGUOUS.search(sent):
        return (first,)
    found = [first]
    for text in dict.fromkeys((sent.partition("#")[0], sent)):
        marked = percent_decoded(_ENCODED_SLASH.sub(_SLASH, text), "surrogateescape")
        for decoded in dict.fromkeys((marked.replace(_SLASH, "/"), marked.replace(_SLASH, "%2F"))):
            found += [Reading(decoded, dots) for dots in _ways_with_dots(decoded)]
            found.append(Reading(decoded.replace("\\", "/")))  # where a backslash separates, dots are resolved
    return tuple(dict.fromkeys(found))


def _ways_with_dots(decoded: str) -> tuple[Dots, ...]:
    if not _DOTS.search(decoded):
        return (Dots.RESOLVED,)
    return tuple(Dots) if "//" in decoded else (Dots.RESOLVED, Dots.KEPT)


def _resolved(path: str, dots: Dots = Dots.RESOLVED) -> str:
    """A decoded path without double and trailing slashes, and without dot segments unless they are kept."""
    segments: list[str] = []
    for segment in path.split("/"):
        if segment == ".." and dots is not Dots.KEPT:
            if segments:
                segments.pop()
        elif (segment or (dots is Dots.RESOLVED_FIRST and segments)) and (segment != "." or dots is Dots.KEPT):
            segments.append(segment)
    return "/" + "/".join(segments if dots is not Dots.RESOLVED_FIRST else filter(None, segments))


def _decoded(path: str) -> str:
    """A path as it was sent, without scheme, host, query, fragment and percent-encoding."""
    # Bytes that are not UTF-8 stay marked from each other, as lone surrogates.
    return percent_decoded(_without_query(path).partition("#")[0], "surrogateescape")


def _without_query(path: str) -> str:
    """A path as it was sent, without scheme, host and query."""
    if found := _ABSOLUTE_FORM.match(path):
        path = path[found.end() :]
    return path.partition("?")[0]


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
    return _HAS_CONTROL if _MAYBE_CONTROL.search(path) and has_control(_decoded(path)) else None


def has_control(decoded: str) -> bool:
    """Whether a decoded path has a control character: ASCII's, DEL, or those of Latin-1."""
    return _CONTROL.search(decoded) is not None


class Spelling(NamedTuple):
    """Which paths a back end takes for one, beyond what all do."""

    case_sensitive: bool = True
    strip_parameters: bool = False
    """Whether what follows a ``;`` in a segment is cut off: ``/api;v=1/search`` is ``/api/search``."""

    def of_path(self, path: str) -> str:
        """A path, normalised, in the spelling that it is compared in."""
        return self.of_reading(readings(path)[0])

    def of_reading(self, reading: Reading) -> str:
        """A path as one kind of server reads it, normalised, in the spelling that it is compared in."""
        path, dots, is_normal = reading
        if self.strip_parameters and ";" in path:  # before dot segments: servers that have them take "..;x" for ".."
            path, is_normal = _PARAMETERS.sub("", path), False
        if not is_normal:
            path = _resolved(path, dots)
        return path if self.case_sensitive else path.casefold()

    def of_pattern(self, pattern: str) -> str:
        """A canonical pattern in the same spelling."""
        return pattern if self.case_sensitive else pattern.casefold()


PLAIN: Final = Spelling()


def is_too_long(path: str) -> bool:
    """Whether a path cannot be matched with rules because of its length; its query does not count."""
    return len(path) > MAX_PATH and len(path.partition("?")[0].partition("#")[0]) > MAX_PATH


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


_PARAMETER: Final = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*(?::[a-z]+)?\}")
_MANY_SEGMENTS: Final = re.compile(r"\{[^{}]*:path\}")
_ENCODED_SYNTAX: Final = re.compile(r"%(?:2a|7b|7d)", re.IGNORECASE)
_MAX_PATTERN: Final = 1_000


class Kind(IntEnum):
    """What a pattern can match, the more specific first."""

    EXACT = 0
    TEMPLATE = 1
    PREFIX = 2
    ANY = 3


def kind(pattern: str) -> Kind:
    """How specific a pattern is."""
    if pattern == "/*":
        return Kind.ANY
    if pattern.endswith("/*"):
        return Kind.PREFIX
    return Kind.TEMPLATE if "{" in pattern else Kind.EXACT


def problem(pattern: str, *, stored: bool = False) -> str | None:  # noqa: PLR0911 (one return per problem)
    """What is wrong with a pattern, or None.

    A `stored` one may have control characters, as it once could be written with. It matches no request.
    """
    if len(pattern) > _MAX_PATTERN:
        return f"an endpoint has at most {_MAX_PATTERN} characters, not {len(pattern)}"
    if pattern == "*":
        return None
    if not pattern.startswith("/"):
        return f"{short_repr(pattern)} does not start with '/'; write for example /api/search, /users/{{id}} or /api/*"
    if "?" in pattern or "#" in pattern:
        return f"{short_repr(pattern)} has a query or fragment; an endpoint is only a path"
    if not stored and has_control(_decoded(pattern)):
        return f"{short_repr(pattern)} has a control character, and requests with one are refused"
    if _ENCODED_SYNTAX.search(pattern):
        return f"{short_repr(pattern)} has an encoded '*', '{{' or '}}', which cannot be matched literally"
    wrong = (_segment_problem(segment, pattern) for segment in pattern.removesuffix("/*").split("/"))
    return next(filter(None, wrong), None)


def _segment_problem(segment: str, pattern: str) -> str | None:
    if "*" in segment:
        return f"'*' is only the last segment of a prefix; use {{name}} inside {short_repr(pattern)}"
    if _MANY_SEGMENTS.fullmatch(segment):
        return f"{short_repr(segment)} is one segment only; for all that follows end the pattern with '/*'"
    if ("{" in segment or "}" in segment) and not _PARAMETER.fullmatch(segment):
        return f"{short_repr(segment)} is not a parameter; a whole segment is written {{name}}"
    return None


def canonical(pattern: str) -> str:
    """The pattern in the spelling that normalised paths have."""
    if pattern in {"*", "/*"}:
        return "/*"
    prefix = pattern.endswith("/*")
    path = _resolved(_decoded(pattern.removesuffix("/*") if prefix else pattern).replace("\\", "/"))
    return f"{path.rstrip('/')}/*" if prefix else path


def segments(pattern: str) -> list[str | None]:
    """The segments of a pattern without its star; None stands for a parameter."""
    parts = pattern.removesuffix("/*").split("/")[1:]
    return [None if _PARAMETER.fullmatch(part) else part for part in parts if part]


def matches(pattern: str, path: str) -> bool:
    """Whether a canonical pattern matches a normalised path; `headgate.core.index` finds the same, faster."""
    if "{" not in pattern and not pattern.endswith("/*"):
        return pattern == path
    wanted = segments(pattern)
    there = [part for part in path.split("/") if part]
    same_length = len(there) >= len(wanted) if pattern.endswith("/*") else len(there) == len(wanted)
    return same_length and all(want is None or want == part for want, part in zip(wanted, there, strict=False))
