"""How PostgreSQL writes a batch into several tables: one statement, which takes the whole batch as one parameter."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from penstock.database.dialect import FIELD, Parameters, TableWrite

ColumnTypes = Mapping[str, Mapping[str, str]]


def of_rows(column_types: ColumnTypes, writes: Sequence[TableWrite], row: Parameters) -> str:
    """The batch as a recordset of rows like this one, and an INSERT … SELECT from it for each table."""
    types = _types(column_types, writes)
    wanted = {name for write in writes for text in write.columns.values() for name in FIELD.findall(text)}
    fields = [name for name in row if name in wanted]
    record = ", ".join(f"{name} {types.get(name, 'bigint')}" for name in fields)
    batch = f"batch AS MATERIALIZED (SELECT * FROM json_to_recordset(CAST(:batch AS json)) AS r({record}))"

    def source(match: re.Match[str]) -> str:
        name = match[1]
        return f"batch.{name}" if name in fields else f"CAST(:{name} AS {types[name]})"

    inserts = [_insert(write, source, "SELECT {} FROM batch") for write in writes]
    return _together([batch], inserts)


def of_one_row(column_types: ColumnTypes, writes: Sequence[TableWrite]) -> str:
    """The fields of the row as parameters: a recordset costs more than to write what is in it."""
    types = _types(column_types, writes)

    def source(match: re.Match[str]) -> str:
        return f"CAST({match[0]} AS {types.get(match[1], 'bigint')})"

    return _together([], [_insert(write, source, "VALUES ({})") for write in writes])


def _types(column_types: ColumnTypes, writes: Iterable[TableWrite]) -> dict[str, str]:
    types: dict[str, str] = {}
    for write in writes:
        types = dict(column_types[write.table]) | types
    return types


def _insert(write: TableWrite, source: Callable[[re.Match[str]], str], shape: str) -> str:
    values = ", ".join([FIELD.sub(source, expression) for expression in write.columns.values()])
    ending = " ON CONFLICT DO NOTHING" if write.ignore_duplicates else ""
    return f"INSERT INTO {{{write.table}}} ({', '.join(write.columns)}) {shape.format(values)}{ending}"


def _together(before: Sequence[str], inserts: Sequence[str]) -> str:
    parts = [*before, *[f"w{i} AS ({insert})" for i, insert in enumerate(inserts[:-1])]]
    return f"WITH {', '.join(parts)} {inserts[-1]}" if parts else inserts[-1]
