"""Adapts connections of every kind to one interface: a `cursor()` that takes SQL and parameters and returns tuples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    import sqlite3

    import psycopg
    import sqlalchemy
    from psycopg import rows
    from sqlalchemy import util as greenlets

    from penstock.database import mysql
    from penstock.database.postgres import pipeline
else:
    sqlite3, psycopg, rows = Lazy("sqlite3"), Lazy("psycopg"), Lazy("psycopg.rows")
    mysql, pipeline = Lazy("penstock.database.mysql"), Lazy("penstock.database.postgres.pipeline")
    sqlalchemy, greenlets = Lazy("sqlalchemy"), Lazy("sqlalchemy.util")


# Our rows hold texts and no bytes, but a caller's connection may return bytes, or UUID objects.


def as_text(_: Any, row: Sequence[Any]) -> tuple[Any, ...]:
    """Row factory: converts bytes and UUIDs to `str`."""
    return tuple([_as_text_plain(value) for value in row])


def _as_text_plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return value.decode()
    return str(value) if isinstance(value, UUID) else value


Answered = tuple[int, Sequence[Any]]
"""How many rows a statement touched, and those that it returned."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A driver's connection whose cursors return tuples, whatever row type the caller has set."""

    connection: Any
    opened: Callable[[Any], Any]

    def cursor(self) -> Any:
        return self.opened(self.connection)


def psycopg_cursor(connection: Any) -> Any:
    """A plain psycopg cursor: the connection's own cursor class may take other parameters."""
    kind = psycopg.AsyncCursor if isinstance(connection, psycopg.AsyncConnection) else psycopg.Cursor
    cursor: Any = kind(connection, row_factory=rows.tuple_row)
    pipeline.read_as_ours(cursor.adapters)
    return cursor


def pymysql_cursor(connection: Any) -> Any:
    return connection.cursor(mysql.TextCursor)


def sqlite_cursor(connection: Any) -> Any:
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = as_text
    return cursor


class Django:
    """Django's connection, whose cursors are wrapped."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def cursor(self) -> _Cursor:
        opened = self.connection.cursor()

        class Cursor(_Cursor):
            def execute(self, sql: str, parameters: Mapping[str, object] | None = None) -> None:
                opened.execute(sql, parameters)
                self.rowcount = opened.rowcount
                self._rows = _plain(opened.fetchall()) if opened.description else []

            def executemany(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
                opened.executemany(sql, rows)
                self.rowcount = opened.rowcount

        return Cursor()


class _Cursor:
    """A cursor's shape: `execute`, `executemany`, `fetchall`, `rowcount`."""

    rowcount = -1
    _rows: Sequence[Any] = ()

    def execute(self, sql: str, parameters: Mapping[str, object] | None = None) -> None: ...

    def executemany(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
        for row in rows:
            self.execute(sql, row)

    def fetchall(self) -> Sequence[Any]:
        return self._rows


class Sqlalchemy:
    """Through SQLAlchemy itself, so that any driver of the caller's will do."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def call(self, work: Callable[[Any], Answered]) -> Answered:
        return work(self.connection)

    def cursor(self) -> _Cursor:
        call = self.call

        class Cursor(_Cursor):
            def execute(self, sql: str, parameters: Mapping[str, object] | None = None) -> None:
                self._send(sql, dict(parameters or {}))

            def executemany(self, sql: str, rows: Sequence[Mapping[str, object]]) -> None:
                self._send(sql, [dict(row) for row in rows])

            def _send(self, sql: str, parameters: Any) -> None:
                self.rowcount, self._rows = call(
                    lambda connection: _answered(connection.execute(sqlalchemy.text(sql), parameters))
                )

        return Cursor()


class BlockConnection(Sqlalchemy):
    """The connection of an `async with` block of ours, in whose thread SQLAlchemy's own connection is."""

    def call(self, work: Callable[[Any], Answered]) -> Answered:
        return greenlets.await_only(self.connection.run_sync(work))  # type: ignore[no-any-return]


def _answered(result: Any) -> Answered:
    return result.rowcount, _plain(result) if result.returns_rows else []


def _plain(found: Iterable[Sequence[Any]]) -> Sequence[Any]:
    return [as_text(None, row) for row in found]


class AsyncPsycopg:
    """psycopg's async connection, waited for from inside a greenlet."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def cursor(self) -> _Cursor:
        connection = self.connection

        class Cursor(_Cursor):
            def execute(self, sql: str, parameters: Mapping[str, object] | None = None) -> None:
                cursor = psycopg_cursor(connection)
                greenlets.await_only(cursor.execute(sql, parameters))
                self.rowcount = cursor.rowcount
                self._rows = _plain(greenlets.await_only(cursor.fetchall())) if cursor.description else []

        return Cursor()


class Asyncpg:
    """asyncpg, whose parameters are numbered in the order in which a statement names them."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def cursor(self) -> _Cursor:
        connection = self.connection

        class Cursor(_Cursor):
            def execute(self, sql: str, parameters: Mapping[str, object] | None = None) -> None:
                self._rows = _plain(greenlets.await_only(connection.fetch(sql, *(parameters or {}).values())))
                self.rowcount = len(self._rows)

        return Cursor()
