"""A SQLAlchemy connection that users are given: SQL may be plain text, and its transaction is not theirs to end."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from sqlalchemy import Connection, event, text

from penstock.errors import PenstockError

ENDING = re.compile(
    r"\s*(COMMIT|END|ABORT|BEGIN|START\s+TRANSACTION|ROLLBACK(?!\s+((WORK|TRANSACTION)\s+)?TO\b))\b",
    re.IGNORECASE,
)
"""Statements with which a transaction is over, or another begun."""
COMMITTING = re.compile(
    r"\s*((CREATE|DROP)(?!\s+(OR\s+REPLACE\s+)?TEMPORARY\b)|ALTER|TRUNCATE|RENAME|GRANT|REVOKE|(UN)?LOCK)\b",
    re.IGNORECASE,
)
"""MySQL and MariaDB commit before and after these, without being asked."""


def taking_text(connection: Connection) -> Connection:
    """SQL may be given as plain text too: with parameters by name, or as the driver writes them."""
    execute = connection.execute

    def lenient(statement: Any, parameters: Any = None, **options: Any) -> Any:
        if not isinstance(statement, str):
            return execute(statement, parameters, **options)
        by_position = isinstance(parameters, tuple | list) and not (
            parameters and isinstance(parameters[0], Mapping)
        )
        if by_position:
            return connection.exec_driver_sql(statement, tuple(parameters), **options)
        return execute(text(statement), parameters, **options)

    connection.execute = lenient  # type: ignore[method-assign]
    return connection


def left_open(connection: Connection) -> Connection:
    """Its commit would tear apart what belongs together, so it is the block's alone."""

    def refuse() -> NoReturn:
        raise PenstockError(
            "the block commits when it ends, with the job: call neither commit() nor rollback() inside. To undo "
            "everything, raise an exception; to undo a part, use connection.begin_nested()"
        )

    def look(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        if ENDING.match(statement):
            refuse()
        if connection.dialect.name in ("mysql", "mariadb") and COMMITTING.match(statement):
            raise PenstockError(
                f"{statement.split()[0].upper()} commits on MySQL and MariaDB, but the block commits when it ends, "
                "with the job: execute it outside, on another connection"
            )

    connection.commit = connection.rollback = refuse  # type: ignore[method-assign]
    event.listen(connection, "before_cursor_execute", look)
    return connection
