"""Checks the conditions that users write when they are declared: later a mistake would be an error of the database."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from sqlalchemy import (
    BinaryExpression,
    BindParameter,
    BooleanClauseList,
    ClauseElement,
    Column,
    ColumnElement,
    Date,
    DateTime,
    Interval,
    Table,
    TextClause,
    Time,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.sql import coercions, operators, roles, visitors
from sqlalchemy.sql.elements import Grouping
from sqlalchemy.sql.selectable import SelectBase
from sqlalchemy.types import TypeEngine

from penstock.errors import DefinitionError
from penstock.reconcile.columns import NOW

COMPUTED = ("function", "now", "tuple", "cast", "try_cast", "extract", "over")
"""Expressions that a partial index does not take; on SQLite a tuple is compared with a subquery."""
COMPUTED_WORDS = re.compile(
    r"::|\b(select|cast|extract|interval|current_\w+|local\w+)\b|\b(?!(?:in|and|or|not|like)\b)\w+\s*\(",
    re.IGNORECASE,
)
"""The same in the user's own SQL text, as far as it can be recognized; in doubt the index has no condition."""


def condition(label: str, given: object, model: str) -> ColumnElement[bool]:
    """Read a condition, and refuse one that cannot be evaluated for a row."""
    try:
        found = coercions.expect(roles.WhereHavingRole, given)
        for each in visitors.iterate(found):
            _check_parameter(label, each)
        return found
    except ArgumentError:
        raise DefinitionError(
            f'{label}={given!r} is not a condition; give one such as {model}.status == "submitted"'
        ) from None


def _check_parameter(label: str, element: Any) -> None:
    if not isinstance(element, BindParameter):
        return
    if element.value is NOW:
        raise DefinitionError(
            f"{label}: NOW is the time at which something is written; a condition asks the database, with func.now()"
        )
    if element.required:
        raise DefinitionError(
            f"{label}: the parameter {element.key!r} has no value, and nothing would give it one"
        )


def has_bytes(given: ClauseElement) -> bool:
    """True if it compares with bytes: as a literal, SQLAlchemy would write them as text, which equals no bytes."""
    return any(isinstance(each, BindParameter) and _is_bytes(each.type) for each in visitors.iterate(given))


def _is_bytes(kind: TypeEngine[Any]) -> bool:
    try:
        return issubclass(kind.python_type, bytes)
    except NotImplementedError:
        return False


def has_callable_parameter(given: ClauseElement) -> bool:
    """True if a parameter is a function of the user, which is called at each execution."""
    return any(
        isinstance(each, BindParameter) and each.callable is not None for each in visitors.iterate(given)
    )


def is_in_words(given: ClauseElement) -> bool:
    """True if some of it is the user's own SQL: the columns that it reads are unknown."""
    return any(_words(each) is not None for each in visitors.iterate(given))


def conjuncts(given: Any) -> list[ColumnElement[bool]]:
    """The conditions that all have to hold. The user's own SQL text is not split."""
    if isinstance(given, Grouping):
        return conjuncts(given.element)
    if not isinstance(given, BooleanClauseList) or given.operator is not operators.and_ or is_in_words(given):
        return [given]
    return [each for clause in given.clauses for each in conjuncts(clause)]


def is_constant(given: ClauseElement) -> bool:
    """True if the same row always gives the same answer, as a partial index needs it: no functions, no subqueries."""
    elements = list(visitors.iterate(given))
    if any(isinstance(each, SelectBase) or each.__visit_name__ in COMPUTED for each in elements):
        return False
    if any(isinstance(each, BindParameter) and each.expanding and not each.value for each in elements):
        return False  # on SQLite an empty IN is a subquery
    if any(isinstance(each, BinaryExpression) and _computes_times(each) for each in elements):
        return False  # on PostgreSQL adding a day depends on the time zone
    if any(COMPUTED_WORDS.search(_words(each) or "") for each in elements):
        return False
    return not (has_callable_parameter(given) or has_bytes(given))


def _words(element: Any) -> str | None:
    if isinstance(element, TextClause):
        return element.text
    name = element.name if getattr(element, "is_literal", False) else None
    return None if name == "*" or (name and name.isdigit()) else name


def _computes_times(element: BinaryExpression[Any]) -> bool:
    kinds = (element.type, element.left.type, element.right.type)
    times = any(isinstance(kind, DateTime | Date | Time | Interval) for kind in kinds)
    return times and element.operator in (operators.add, operators.sub)


def written_out(given: ClauseElement, dialect: Dialect) -> str | None:
    """The condition with its constants as literals. None: some constants have no literal form."""
    try:
        compiled = given.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    except (SQLAlchemyError, NotImplementedError):
        return None
    return None if compiled.params else str(compiled)


def check_tables(label: str, given: ColumnElement[bool], tables: Collection[Table]) -> None:
    """Whether a condition reads columns of these tables only, but for what its subqueries look up elsewhere."""
    known = {table.fullname for table in tables}
    for column in _read_by(given):
        if getattr(column.table, "fullname", None) not in known:
            raise DefinitionError(
                f"{label} reads {column}, which is not a column of {' or '.join(sorted(known))}. "
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
