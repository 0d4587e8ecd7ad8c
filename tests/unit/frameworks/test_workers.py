"""How many processes there are, as far as one of them can know."""

from __future__ import annotations

import pytest

from headgate.edge.frameworks.gate import is_one_of_several, workers_of
from headgate.settings import web_concurrency


@pytest.mark.parametrize(
    ("command", "workers"),
    [
        ("/usr/bin/uvicorn app:app --workers 4", 4),
        ("/venv/uvicorn/__main__.py app:app --workers=3", 3),
        ("gunicorn -w 2 app:app", 2),
        ("gunicorn -w8 app:app", 8),
        ("granian --workers 1 app:app", 1),
        ("uvicorn app:app --workers", 1),
        ("uvicorn app:app", 1),
        ("mytool --workers 4", 1),
        ("", 1),
    ],
)
def test_the_command_of_a_server_says_how_many_workers(command: str, workers: int) -> None:
    """The options of the common servers are understood, and no others."""
    assert workers_of(command.split()) == workers


def test_variables_say_it_too() -> None:
    """The variables that servers read count, if they are numbers."""
    assert web_concurrency({"WEB_CONCURRENCY": "4"}) == 4
    assert web_concurrency({"WEB_CONCURRENCY": "2", "GRANIAN_WORKERS": "3"}) == 3
    assert web_concurrency({"WEB_CONCURRENCY": "many"}) == web_concurrency({}) == 1


def test_a_wsgi_server_is_believed_and_a_test_client_is_not() -> None:
    """Django's test client and Python's own server always report several processes, and are ignored."""
    assert is_one_of_several({"wsgi.multiprocess": True, "SERVER_SOFTWARE": "gunicorn/23"})
    assert not is_one_of_several({"wsgi.multiprocess": True, "SERVER_SOFTWARE": "WSGIServer/0.2"})
    assert not is_one_of_several({"wsgi.multiprocess": True})
    assert not is_one_of_several({"wsgi.multiprocess": False, "SERVER_SOFTWARE": "gunicorn/23"})
