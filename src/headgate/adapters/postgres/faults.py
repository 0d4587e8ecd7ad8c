"""What goes wrong in PostgreSQL, in headgate's words. Translated once, here."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import asyncpg

from headgate.errors import Conflict, DatabaseError, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

_INPUT: Final = (asyncpg.DataError, asyncpg.UntranslatableCharacterError, asyncpg.CharacterNotInRepertoireError)


@contextmanager
def translated() -> Iterator[None]:
    """Whatever fails inside is raised as one of headgate's own errors."""
    try:
        yield
    except asyncpg.UniqueViolationError as error:
        msg = f"it is there already ({error.constraint_name})"
        raise Conflict(msg) from error
    except asyncpg.ForeignKeyViolationError as error:
        msg = f"it belongs to something that is not there, or is still needed ({error.constraint_name})"
        raise Conflict(msg) from error
    except (asyncpg.CheckViolationError, asyncpg.NotNullViolationError) as error:
        msg = f"the database does not take that ({error.constraint_name or error.column_name})"
        raise InvalidRequest(msg) from error
    except _INPUT as error:
        msg = f"the database does not take that: {error}"
        raise InvalidRequest(msg) from error
    except (TimeoutError, OSError, asyncpg.PostgresConnectionError, asyncpg.InterfaceError) as error:
        msg = f"the database does not answer ({_reason(error)})"
        raise DatabaseError(msg, transient=True) from error
    except asyncpg.PostgresError as error:
        transient = (error.sqlstate or "")[:2] in {"08", "40", "53", "55", "57"}
        msg = f"the database refuses: {error}"
        raise DatabaseError(msg, transient=transient) from error


def _reason(error: Exception) -> str:
    """Why, without anything of the address: it may hold a password."""
    return getattr(error, "strerror", None) or type(error).__name__
