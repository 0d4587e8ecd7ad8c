"""Records of users and API keys in PostgreSQL, as the data plane reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.errors import DatabaseError, HeadgateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headgate.ports import Statements


class PostgresRecords:
    """See `headgate.ports.RecordSource`."""

    def __init__(self, statements: Statements) -> None:
        """`statements` is best a database with connections of its own, so that reading waits for no change."""
        self._statements = statements

    async def user(self, name: str) -> Mapping[str, Any] | None:
        """A user."""
        return await self._row("identity.user", name)

    async def key(self, digest: bytes) -> Mapping[str, Any] | None:
        """An API key."""
        return await self._row("identity.key", digest)

    async def _row(self, statement: str, argument: object) -> Mapping[str, Any] | None:
        try:
            return await self._statements.row(statement, argument)
        except DatabaseError:
            raise
        except HeadgateError as error:
            raise DatabaseError(str(error), transient=False) from error
