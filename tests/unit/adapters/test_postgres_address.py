"""Addresses of databases."""

from __future__ import annotations

import pytest

from headgate.adapters.postgres import database
from headgate.errors import InvalidSettings


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:p%40ss@host:5432/name",
        "postgres://host/name?sslmode=require",
        "postgresql://user@[::1]:5432,a:1,b/name?target_session_attrs=read-write",
        "postgresql://user@/name?host=/run/postgresql&port=5433",
        "postgresql:///name",
    ],
)
def test_addresses_as_people_write_them(url: str) -> None:
    """Everything that PostgreSQL's own clients take is taken, and nothing of it is lost."""
    assert database.parse_address(url).url.replace("%2F", "/") == url
    assert database.parse_address(url).cached_statements > 0


def test_behind_pgbouncer_no_statement_is_kept() -> None:
    """The option is headgate's own, and does not reach the server."""
    read = database.parse_address("postgresql://host/name?pgbouncer=true&search_path=own")
    assert read == ("postgresql://host/name?search_path=own", 0)


@pytest.mark.parametrize(
    "url",
    [
        *("", "mysql://secret", "postgresql://x/y?pgbouncer=perhaps", 7, None, b"postgresql://x"),
        *(
            "postgresql://user:sec/ret@host/name",
            "postgresql://user:sec?ret@host/name",
            "postgresql://user:sec#ret@h/n",
        ),
        *("postgresql://user:secret@host@other/name", "postgresql://user:secret@host:port/name"),
        *("postgresql://host/name?port=secret", "postgresql://host/name?secret", "postgresql://[secret/name"),
    ],
)
def test_an_address_that_cannot_be_read_is_not_repeated(url: str) -> None:
    """A password with a sign that must be encoded is refused at once, and stands in no message."""
    with pytest.raises(InvalidSettings) as caught:
        database.parse_address(url)
    assert "sec" not in str(caught.value)
