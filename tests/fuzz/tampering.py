"""Tampering with rows: any table, any column, any value that the column takes; rows removed, doubled, made up.

Drawn by Hypothesis from the schema itself, so a new table or column is tampered with as soon as it is there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, Table, delete, insert, select, update
from sqlalchemy.exc import DBAPIError, StatementError

from penstock import Penstock
from penstock.values.ids import new_id

LEFT_ALONE = {"schema_versions"}
MEANT = {("queue_controls", "name", "default")}
"""No damage: an operator may well pause this queue, and then nothing of it is to come through."""
ODD_TEXTS = [
    "zzz",
    "",
    "nope",
    "5",
    "null",
    "[]",
    "{}",
    '["x"]',
    "[[1]]",
    '{"args": 5}',
    "[" * 2000,
    "a\tb",
    "%s;--'\"",
    "running",
    "scheduled",
    "available",
    "succeeded",
    "waiting",
    "default",
    "é🙂",
]
WHOLE = [0, 1, -1, 7, 2**31 - 1, -(2**31), 2**62, 2**63 - 1, -(2**63), -(2**63) + 1]


@dataclass(frozen=True)
class Tampering:
    """What is done to the rows of a table."""

    table: str
    act: str
    column: str = ""
    value: object = None

    def __str__(self) -> str:
        return f"{self.act} {self.table}{f'.{self.column} = {self.value!r:.40}' if self.column else ''}"


def tamperings(app: Penstock) -> st.SearchStrategy[Tampering]:
    """Those that are possible on the tables of this app."""
    prefix = app.database.prefix
    tables = {
        table.name.removeprefix(prefix): table
        for table in app.metadata.tables.values()
        if table.name.removeprefix(prefix) not in LEFT_ALONE
    }

    def of(name: str) -> st.SearchStrategy[Tampering]:
        columns = {column.name: column for column in tables[name].columns}
        change = st.sampled_from(sorted(columns)).flatmap(
            lambda column: values_of(columns[column]).map(
                lambda value: Tampering(name, "change", column, value)
            )
        )
        others = [Tampering(name, "remove"), Tampering(name, "double"), Tampering(name, "make up")]
        either = st.one_of(change, change, change, st.sampled_from(others))
        return either.filter(lambda one: (one.table, one.column, one.value) not in MEANT)

    return st.sampled_from(sorted(tables)).flatmap(of)


def values_of(column: Column[Any]) -> st.SearchStrategy[object]:
    """Values of the column's type, the odd ones first."""
    kind = column.type
    some: st.SearchStrategy[object]
    if isinstance(kind, Boolean):
        some = st.booleans()
    elif isinstance(kind, Float):
        some = st.sampled_from([0.0, -1.0, 1e300])
    elif isinstance(kind, BigInteger):
        # MariaDB and SQLite count on from the greatest that they have seen, and then there is no number left for any
        # row until it is repaired: tests/conformance/operate/test_used_up_numbers.py.
        some = st.sampled_from(WHOLE if column.autoincrement is not True else WHOLE[:6])
    elif isinstance(kind, Integer):
        some = st.sampled_from([value for value in WHOLE if abs(value) < 2**31])
    elif "CHAR(36)" in str(kind).upper() or "uuid" in type(kind).__name__.lower() or _is_id(column):
        some = st.sampled_from([new_id(), "00000000-0000-0000-0000-000000000000"])
    else:
        some = st.one_of(st.sampled_from(ODD_TEXTS), st.text(max_size=12).map(_storable))
    return st.one_of(st.none(), some) if column.nullable else some


def tamper(app: Penstock, what: Tampering) -> bool:
    """Do it, by the user's own way to the tables; False: the database refuses."""
    table = app.metadata.tables[_key(app, what.table)]
    try:
        with app.database.engine.begin() as connection:
            match what.act:
                case "change":
                    connection.execute(update(table).values({what.column: what.value}))
                case "remove":
                    connection.execute(delete(table))
                case "double":
                    for row in connection.execute(select(table)).mappings().all():
                        connection.execute(insert(table), _doubled(table, dict(row)))
                case _:
                    connection.execute(insert(table), {c.name: _made_up(c) for c in table.columns})
    except (DBAPIError, StatementError, OverflowError, ValueError):
        return False
    return True


def clear(app: Penstock) -> None:
    """Remove what is left of earlier cases; only who is alive stays."""
    prefix = app.database.prefix
    kept = {"schema_versions", "processes", "definitions"}
    for table in app.metadata.tables.values():
        if table.name.removeprefix(prefix) not in kept:
            app.database.with_retries(lambda table=table: _empty(app, table))  # type: ignore[misc]


def _empty(app: Penstock, table: Table) -> None:
    """The worker is at its rows too: a deadlock between the two is tried again."""
    with app.database.engine.begin() as connection:
        connection.execute(delete(table))


def _key(app: Penstock, table: str) -> str:
    name = f"{app.database.prefix}{table}"
    return f"{app.database.schema}.{name}" if app.database.schema else name


def _is_id(column: Column[Any]) -> bool:
    return column.name in ("id", "holder", "setter") or column.name.endswith("_id")


def _storable(text: str) -> str:
    return json.dumps(text)[:12]


def _doubled(table: Table, row: dict[str, Any]) -> dict[str, Any]:
    """The same row under another key."""
    for column in table.primary_key.columns:
        if isinstance(column.type, Integer | BigInteger):
            row[column.name] = int(row[column.name] or 0) + 1_000_003
        elif _is_id(column):
            row[column.name] = new_id()
    return row


def _made_up(column: Column[Any]) -> object:
    if isinstance(column.type, Boolean):
        return False
    if isinstance(column.type, Integer | BigInteger | Float):
        return -1
    return new_id() if _is_id(column) else "zzz"
