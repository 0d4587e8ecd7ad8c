"""Endpoint patterns: what can be written, and what it stands for."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headgate.core.endpoint import Kind, canonical, kind, problem, segments
from headgate.core.path import normalise_path


@pytest.mark.parametrize(
    ("pattern", "spelled", "sort"),
    [
        ("/api/search", "/api/search", Kind.EXACT),
        ("/", "/", Kind.EXACT),
        ("/api/search/", "/api/search", Kind.EXACT),
        ("//api/./v1/../search", "/api/search", Kind.EXACT),
        ("/caf%C3%A9", "/caf\u00e9", Kind.EXACT),
        ("/api%2Fsearch", "/api/search", Kind.EXACT),
        ("/a%3Fb", "/a?b", Kind.EXACT),
        ("/v1/check:batch", "/v1/check:batch", Kind.EXACT),
        ("/users/{id}", "/users/{id}", Kind.TEMPLATE),
        ("/users/{user_id}/posts/{n}/", "/users/{user_id}/posts/{n}", Kind.TEMPLATE),
        ("/users/{id:int}", "/users/{id:int}", Kind.TEMPLATE),
        ("/{anything}", "/{anything}", Kind.TEMPLATE),
        ("/api/v1/*", "/api/v1/*", Kind.PREFIX),
        ("/api/v1//*", "/api/v1/*", Kind.PREFIX),
        ("/users/{id}/*", "/users/{id}/*", Kind.PREFIX),
        ("/*", "/*", Kind.ANY),
        ("*", "/*", Kind.ANY),
        ("//*", "/*", Kind.ANY),
        ("/a/../*", "/*", Kind.ANY),
    ],
)
def test_patterns_have_the_spelling_of_paths(pattern: str, spelled: str, sort: Kind) -> None:
    """A pattern is brought to the spelling that normalised paths have, and is exact, template, prefix or any."""
    assert problem(pattern) is None
    assert canonical(pattern) == spelled
    assert kind(canonical(pattern)) is sort


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("", "'' does not start with '/'; write for example /api/search, /users/{id} or /api/*"),
        ("api/search", "'api/search' does not start with '/'"),
        ("http://example.com/api", "does not start with '/'"),
        ("**", "does not start with '/'"),
        ("/api?x=1", "'/api?x=1' has a query or fragment; an endpoint is only a path"),
        ("/api#top", "has a query or fragment"),
        ("/api*", "'*' is only the last segment of a prefix; use {name} inside '/api*'"),
        ("/api/*/posts", "'*' is only the last segment"),
        ("/api/*/", "'*' is only the last segment"),
        ("/api/**", "'*' is only the last segment"),
        ("/*/*", "'*' is only the last segment"),
        ("/api/x{id}", "'x{id}' is not a parameter; a whole segment is written {name}"),
        ("/api/{id}.json", "'{id}.json' is not a parameter"),
        ("/api/{}", "'{}' is not a parameter"),
        ("/api/{1d}", "'{1d}' is not a parameter"),
        ("/api/{id", "'{id' is not a parameter"),
        ("/api/id}", "'id}' is not a parameter"),
        ("/api/{{id}}", "'{{id}}' is not a parameter"),
        ("/api/{a}{b}", "'{a}{b}' is not a parameter"),
        ("/api/{id:[0-9]+}", "'{id:[0-9]+}' is not a parameter"),
        ("/files/{rest:path}", "'{rest:path}' is one segment only; for all that follows end"),
        ("/api/%7Bid%7D", "has an encoded '*', '{' or '}', which cannot be matched literally"),
        ("/api/%2A", "has an encoded '*', '{' or '}'"),
        ("/api/%2a", "has an encoded '*', '{' or '}'"),
        ("/" + "a" * 1_000, "an endpoint has at most 1000 characters, not 1001"),
    ],
    ids=lambda text: text[:40],
)
def test_refuses_what_is_no_pattern(pattern: str, sentence: str) -> None:
    """A malformed pattern is refused with a sentence that says how to write it."""
    assert sentence in (problem(pattern) or "")


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("/", []),
        ("/*", []),
        ("/api/search", ["api", "search"]),
        ("/users/{id}/posts", ["users", None, "posts"]),
        ("/users/{id:int}/*", ["users", None]),
    ],
)
def test_a_pattern_is_its_segments(pattern: str, parts: list[str | None]) -> None:
    """Parameters stand for any one segment, whatever they are called."""
    assert segments(pattern) == parts


@settings(max_examples=200)
@given(st.text() | st.lists(st.sampled_from(["/", "a", "{id}", "*", ".", "%2e", "%7b", "\\", "{", "%"])).map("".join))
def test_any_text_is_a_pattern_or_has_a_problem(pattern: str) -> None:
    """No text makes the reading of patterns fail, and a good pattern keeps its kind when it is spelled out."""
    if problem(pattern) is None:
        spelled = canonical(pattern)
        assert spelled.startswith("/")
        assert spelled.count("*") == pattern.count("*")
        assert spelled.count("{") <= pattern.count("{")
        assert (None in segments(spelled)) == ("{" in spelled)


@given(st.text(st.characters(exclude_characters="*{}?#")))
def test_an_exact_pattern_is_spelled_like_the_path_itself(path: str) -> None:
    """A path used as a pattern matches that path in whatever spelling."""
    assume(problem(f"/{path}") is None)
    assert canonical(f"/{path}") == normalise_path(f"/{path}")
