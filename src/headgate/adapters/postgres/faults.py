"""What goes wrong in PostgreSQL, in headgate's words. Translated once, here."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import asyncpg

from headgate.errors import Conflict, DatabaseError, InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOST: Final = (TimeoutError, OSError, asyncpg.PostgresConnectionError)
_UNFIT: Final = (
    asyncpg.DataError,
    asyncpg.CheckViolationError,
    asyncpg.NotNullViolationError,
    asyncpg.ProgramLimitExceededError,  # too long for an index
)
# Connections, transactions that got into each other's way, resources, locks, an operator's intervention.
_PASSING: Final = frozenset({"08", "40", "53", "55", "57"})


@contextmanager
def translated() -> Iterator[None]:
    """Whatever fails inside is raised as one of headgate's own errors."""
    try:
        yield
    except asyncpg.UniqueViolationError as error:
        msg = f"a record with this id or name exists already ({error.constraint_name}); choose another one"
        raise Conflict(msg) from error
    except asyncpg.ForeignKeyViolationError as error:
        msg = f"the change names a missing record, or deletes one in use ({error.constraint_name})"
        raise Conflict(msg) from error
    except _UNFIT as error:
        msg = f"the database rejects the values: {_words(error)}"
        raise InvalidRequest(msg) from error
    except asyncpg.LockNotAvailableError as error:
        msg = "timeout: another change has kept the lock for too long; try again"
        raise DatabaseError(msg, transient=True) from error
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError) as error:
        msg = f"the database is not prepared ({_words(error)}); run 'headgate db migrate'"
        raise DatabaseError(msg, transient=False) from error
    except (asyncpg.InvalidSQLStatementNameError, asyncpg.DuplicatePreparedStatementError) as error:
        msg = f"the database refused: {_words(error)}; behind PgBouncer, write ?pgbouncer=true after its address"
        raise DatabaseError(msg, transient=False) from error
    except _LOST as error:
        msg = f"the database does not answer ({_reason(error)})"
        raise DatabaseError(msg, transient=True) from error
    except asyncpg.PostgresError as error:
        # A table that was changed meanwhile is known to asyncpg after the first failure.
        passing = (error.sqlstate or "")[:2] in _PASSING or isinstance(error, asyncpg.InvalidCachedStatementError)
        msg = f"the database refused: {_words(error)}"
        raise DatabaseError(msg, transient=passing) from error
    except (asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        msg = f"the database rejected the query: {_words(error)}"
        raise DatabaseError(msg, transient=False) from error


def outcome_is_unknown(error: DatabaseError) -> bool:
    """Whether what was asked may have been done, although there was no answer."""
    return isinstance(error.__cause__, _LOST)


def _words(error: Exception) -> str:
    """What the server says, in one line, without its details: they hold what was to be stored."""
    text = str(error.args[0]) if error.args else type(error).__name__
    return text.partition("\n")[0]


def _reason(error: Exception) -> str:
    """Why, without anything of the address: it may hold a password."""
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return getattr(error, "strerror", None) or type(error).__name__
