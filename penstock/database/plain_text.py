"""A SQLAlchemy connection that users are given: SQL may be plain text, and its transaction is not theirs to end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from sqlalchemy import Connection, text

from penstock.errors import PenstockError


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

    connection.commit = connection.rollback = refuse  # type: ignore[method-assign]
    return connection
