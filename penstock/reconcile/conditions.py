"""Conditions that users write, checked where they are declared: later a mistake would be an error of the database."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import BindParameter, ClauseElement, Column, ColumnElement, Table
from sqlalchemy.exc import ArgumentError
from sqlalchemy.sql import coercions, roles, visitors
from sqlalchemy.sql.selectable import SelectBase
from sqlalchemy.types import TypeEngine

from penstock.errors import DefinitionError
from penstock.reconcile.now import NOW


def condition(said: str, given: object, model: str) -> ColumnElement[bool]:
    """What was given, if it can be asked of a row."""
    try:
        found = coercions.expect(roles.WhereHavingRole, given)
        if any(isinstance(each, BindParameter) and each.value is NOW for each in visitors.iterate(found)):
            raise DefinitionError(
                f"{said}: NOW is the time at which something is written; a condition asks the database, with func.now()"
            )
        return found
    except ArgumentError:
        raise DefinitionError(
            f'{said}={given!r} is not a condition; give one such as {model}.status == "submitted"'
        ) from None


def has_bytes(given: ClauseElement) -> bool:
    """Whether it compares with bytes. Written out, SQLAlchemy would make them a text, which equals no bytes."""
    return any(isinstance(each, BindParameter) and _is_bytes(each.type) for each in visitors.iterate(given))


def _is_bytes(kind: TypeEngine[Any]) -> bool:
    try:
        return issubclass(kind.python_type, bytes)
    except NotImplementedError:
        return False


def check_tables(said: str, given: ColumnElement[bool], tables: Collection[Table]) -> None:
    """Whether a condition reads columns of these tables only, but for what its subqueries look up elsewhere."""
    known = {table.fullname for table in tables}
    for column in _read_by(given):
        if getattr(column.table, "fullname", None) not in known:
            raise DefinitionError(
                f"{said} reads {column}, which is not a column of {' or '.join(sorted(known))}. "
                "What is in another table can be asked with exists() or in_(select(...))"
            )


def _read_by(given: ClauseElement) -> Iterator[Column[Any]]:
    left: list[Any] = [given]
    while left:
        element = left.pop()
        if isinstance(element, SelectBase):
            continue
        if isinstance(element, Column) and element.table is not None:
            yield element
        left += element.get_children()
