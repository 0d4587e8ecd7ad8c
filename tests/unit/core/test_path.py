"""Paths: every spelling that a server may take for the same path is the same path."""

from __future__ import annotations

import re
from contextlib import nullcontext
from urllib.parse import unquote

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from headgate.core.path import MAX_PATH, normalise_path, path_problem, percent_decoded
from headgate.errors import InvalidRequest


@pytest.mark.parametrize(
    ("path", "normal"),
    [
        ("/api/search", "/api/search"),
        ("/", "/"),
        ("", "/"),
        ("*", "/*"),
        ("api/search", "/api/search"),
        ("/API/Search", "/API/Search"),
        # slashes
        ("//api/search", "/api/search"),
        ("///api////search//", "/api/search"),
        ("/api/search/", "/api/search"),
        ("/api\\search", "/api/search"),
        ("\\api\\search", "/api/search"),
        ("/api%5Csearch", "/api/search"),
        ("/api%5csearch", "/api/search"),
        ("/api%2Fsearch", "/api/search"),
        ("/api%2fsearch", "/api/search"),
        ("%2Fapi%2Fsearch", "/api/search"),
        # dot segments
        ("/api/./search", "/api/search"),
        ("/api/v1/../search", "/api/search"),
        ("/api/v1/%2e%2e/search", "/api/search"),
        ("/api/v1/%2E%2E/search", "/api/search"),
        ("/api/v1/.%2e/search", "/api/search"),
        ("/api/v1/%2e./search", "/api/search"),
        ("/api/%2e/search", "/api/search"),
        ("/api/v1/..%2Fsearch", "/api/search"),
        ("/api/v1/..%5csearch", "/api/search"),
        ("/api/search/.", "/api/search"),
        ("/api/search/x/..", "/api/search"),
        ("/../../../api/search", "/api/search"),
        ("/..", "/"),
        ("/.", "/"),
        ("/a/b/../../..", "/"),
        ("/api/.../search", "/api/.../search"),
        ("/api/..search", "/api/..search"),
        ("/.well-known/x", "/.well-known/x"),
        ("/api//v1/./x/%2e%2e/search/?q=1", "/api/v1/search"),
        # percent-encoding is undone once
        ("/%61pi/se%61rch", "/api/search"),
        ("/api%20x", "/api x"),
        ("/api+x", "/api+x"),
        ("/api/search%20", "/api/search "),
        ("/api/search%C2%A0", "/api/search\u00a0"),
        ("/api%252Fsearch", "/api%2Fsearch"),
        ("/api/%252e%252e/search", "/api/%2e%2e/search"),
        ("/100%25", "/100%"),
        ("/100%", "/100%"),
        ("/100%zz", "/100%zz"),
        ("/100%4", "/100%4"),
        ("/api%u002fsearch", "/api%u002fsearch"),
        # query and fragment
        ("/api/search?q=1", "/api/search"),
        ("/api/search?q=/../x", "/api/search"),
        ("/api/search#top", "/api/search"),
        ("/api/search#a?b", "/api/search"),
        ("/api/search?", "/api/search"),
        ("?q=1", "/"),
        ("#top", "/"),
        ("/api%3Fsearch", "/api?search"),
        ("/api%23search", "/api#search"),
        # the absolute form of a request line
        ("http://example.com/api/search", "/api/search"),
        ("HTTPS://user:pw@example.com:8443/api/search?q=1", "/api/search"),
        ("http://example.com", "/"),
        ("http://example.com?q=/x", "/"),
        ("http:///api/search", "/api/search"),
        ("http://example.com//api/../search", "/search"),
        ("http://example.com\\api\\search", "/api/search"),
        ("/http://example.com/api", "/http:/example.com/api"),
        ("//example.com/api", "/example.com/api"),
        # a semicolon is a letter like any other
        ("/api/search;v=1", "/api/search;v=1"),
        ("/api;v=1/search", "/api;v=1/search"),
        ("/api/..;/search", "/api/..;/search"),
        # letters of all kinds
        ("/caf\u00e9", "/caf\u00e9"),
        ("/caf%C3%A9", "/caf\u00e9"),
        ("/\U0001f600", "/\U0001f600"),
        ("/%F0%9F%98%80", "/\U0001f600"),
        ("/api\uff0fsearch", "/api\uff0fsearch"),
        ("/api/\u2025/search", "/api/\u2025/search"),
        # what is not text
        ("/%ff", "/\udcff"),
        ("/%c0%af", "/\udcc0\udcaf"),
        ("/api%c0%afsearch", "/api\udcc0\udcafsearch"),
        ("/api/%c0%ae%c0%ae/search", "/api/\udcc0\udcae\udcc0\udcae/search"),
        ("/api/%e0%80%afx", "/api/\udce0\udc80\udcafx"),
        ("/%ed%a0%80", "/\udced\udca0\udc80"),
        ("/\ud800", "/\ud800"),
    ],
    ids=ascii,
)
def test_has_one_spelling(path: str, normal: str) -> None:
    """A path is brought to the one spelling that rules are matched by."""
    assert normalise_path(path) == normal


def test_bytes_that_are_not_text_stay_apart() -> None:
    """Two paths with different bytes that are not UTF-8 stay two paths."""
    assert len({normalise_path(f"/%{byte:02x}") for byte in range(0x80, 0x100)}) == 128


HOSTILE = st.lists(
    st.sampled_from(
        [
            "/",
            "\\",
            ".",
            "..",
            "%2e",
            "%2F",
            "%5C",
            "%25",
            "%",
            "%00",
            "%ff",
            "?",
            "#",
            ";",
            "a",
            "*",
            "{",
            "://",
            "\u00e9",
        ]
    ),
    max_size=15,
).map("".join)


@pytest.mark.untraced
@settings(max_examples=200)
@given(st.text() | HOSTILE)
def test_every_text_has_a_normal_form(path: str) -> None:
    """Whatever the path, its normal form is absolute and has no empty or dot segments and no slash at its end."""
    assume(path_problem(path) is None)
    normal = normalise_path(path)
    assert normal.startswith("/")
    assert normal == "/" or not {"", ".", ".."} & set(normal.split("/")[1:])
    assert "\\" not in normal


@settings(max_examples=200)
@given(st.text() | HOSTILE)
def test_normal_paths_stay_as_they_are(path: str) -> None:
    """A normal path in which nothing can be decoded or cut off is its own normal form."""
    assume(path_problem(path) is None)
    normal = normalise_path(path)
    if not set("%?#") & set(normal):
        assert normalise_path(normal) == normal


@pytest.mark.untraced
@given(st.lists(st.text("abcXYZ019-_~", min_size=1), min_size=1), st.data())
def test_no_disguise_changes_a_path(segments: list[str], data: st.DataObject) -> None:
    """Encoding any letters, adding slashes and detours, or a query leaves the path the same."""
    disguised = ""
    for segment in segments:
        disguised += data.draw(st.sampled_from(["/", "//", "/./", "/x/../", "/%2e/", "\\", "%2F", "/x/%2E%2e/"]))
        for letter in segment:
            disguised += data.draw(st.sampled_from([letter, f"%{ord(letter):02x}", f"%{ord(letter):02X}"]))
    disguised += data.draw(st.sampled_from(["", "/", "//", "/.", "?q=1", "/?a", "#x"]))
    assert normalise_path(disguised) == "/" + "/".join(segments)


CONTROLS = ["%00", "%09", "%0a", "%0D", "%1f", "%7F", "%C2%85", "\x00", "\t", "\n", "\r", "\x7f", "\x85"]


@pytest.mark.parametrize("control", CONTROLS, ids=ascii)
@pytest.mark.parametrize(
    "path", ["/api/search{}", "/api{}/search", "{}", "/{}/../api/search", "http://x/a{}?b", "/a#{}b"]
)
def test_a_path_with_a_control_character_is_refused(path: str, control: str) -> None:
    """Servers disagree on what follows one, so it could reach a resource around its rule. In a query it is harmless."""
    given_path = path.format(control)
    with pytest.raises(InvalidRequest, match=r"^the path has a control character"):
        normalise_path(given_path)
    assert "control character" in (path_problem(given_path) or "")
    assert normalise_path(f"/api/search?q={control}") == "/api/search"
    assert path_problem(f"/api/search?q={control}") is None


@given(st.text() | HOSTILE)
def test_a_problem_is_known_before_a_path_is_matched(path: str) -> None:
    """`path_problem` says why a path will be refused, and nothing else is."""
    problem = path_problem(path)
    with nullcontext() if problem is None else pytest.raises(InvalidRequest, match=re.escape(problem)):
        normalise_path(path)


@pytest.mark.parametrize(
    ("path", "stripped"),
    [
        ("/api/search;v=1", "/api/search"),
        ("/api;v=1;w/search;", "/api/search"),
        ("/api/search%3Bv=1", "/api/search"),
        ("/api/x/..;a=b/search", "/api/search"),
        ("/api/.;/search", "/api/search"),
        ("/;x/api/search", "/api/search"),
        (";", "/"),
        ("/api/search", "/api/search"),
    ],
)
def test_parameters_can_be_stripped(path: str, stripped: str) -> None:
    """For back ends that ignore what follows a semicolon, also in dot segments."""
    assert normalise_path(path, strip_parameters=True) == stripped


def test_a_path_that_is_too_long_is_refused() -> None:
    """Nothing of it is decoded or cut off; a query may be of any length."""
    assert normalise_path("/../" * (MAX_PATH // 4 - 1) + "api") == "/api"
    assert len(normalise_path("/" + "a" * (MAX_PATH - 1) + "?" + "q" * 1_000_000)) == MAX_PATH
    for path in ("/." * MAX_PATH + "/api", "/" + "a" * MAX_PATH, "/" + "%" * 1_000_000, "/a#" + "/" * MAX_PATH):
        with pytest.raises(InvalidRequest, match="a path has at most 8192 characters"):
            normalise_path(path)
        assert path_problem(path) == "a path has at most 8192 characters"


@pytest.mark.parametrize("errors", ["surrogateescape", "replace"])
@example(path=["%41", "\ud800"])
@given(path=st.lists(st.sampled_from([*"%aF0/é€", "%41", "%c3", "%C3%A9", "%e2%82", "%AC", "%f0%9F", "\ud800"])))
def test_decoding_is_that_of_the_standard_library(path: list[str], errors: str) -> None:
    """Only faster, whatever follows a per cent sign."""
    assert percent_decoded("".join(path), errors) == unquote("".join(path), errors=errors)
