"""A user's column "is one of these", the way each database likes it best.

PostgreSQL takes the list as one parameter: the statement stays the same for every length, so it is compiled, parsed and
planned once. Elsewhere, and for types that make no arrays, it is an IN with as many parameters as there are values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Boolean, Column, ColumnElement, Enum, Integer, String, Uuid, any_, bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.operators import OperatorType
from sqlalchemy.sql.visitors import InternalTraversal


def among(column: Column[Any], values: Sequence[Any] | str) -> ColumnElement[bool]:
    """The column has one of these values, or of those that are given under this name when the statement is executed."""
    if isinstance(values, str):
        listed = column.in_(bindparam(values, expanding=True))
        array = bindparam(values, type_=ARRAY(column.type))
    else:
        listed = column.in_(values)
        array = bindparam(None, list(values), type_=ARRAY(column.type))
    return _Among(listed, column == any_(array)) if _makes_arrays(column) else listed


class _Among(ColumnElement[bool]):
    """Two ways to say the same."""

    __visit_name__ = "among"
    inherit_cache = True
    _traverse_internals = [
        ("listed", InternalTraversal.dp_clauseelement),
        ("together", InternalTraversal.dp_clauseelement),
    ]
    type = Boolean()

    def __init__(self, listed: ColumnElement[bool], together: ColumnElement[bool]) -> None:
        self.listed = listed
        self.together = together

    def self_group(self, against: OperatorType | None = None) -> _Among:
        """As it is. A truth value would be compared with 1 where there are none, and no index be used for that."""
        return self


@compiles(_Among)
def _list(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.listed, **options)


@compiles(_Among, "postgresql")
def _array_of(element: _Among, compiler: SQLCompiler, **options: Any) -> str:
    return compiler.process(element.together, **options)


def _makes_arrays(column: Column[Any]) -> bool:
    return isinstance(column.type, Integer | String | Uuid) and not isinstance(column.type, Enum)
