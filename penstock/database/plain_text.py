"""SQL as plain text on a SQLAlchemy connection that users are given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, text


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
