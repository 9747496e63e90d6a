"""NOW: the one instant of an apply, by the database's clock, in whatever type each column has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Column, Date, DateTime

from penstock.errors import DefinitionError
from penstock.reconcile.columns import Instant


class Now:
    """Stands for the time of the apply in what a handler returns."""

    _only: Now | None = None

    def __new__(cls) -> Now:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "NOW"


NOW: Final = Now()


def resolve(value: object, column: Column[Any], now: datetime) -> object:
    """The value to write into this column; times fit the column, whether it keeps a time zone or not."""
    if value is NOW:
        return _fitting(now, column)
    if isinstance(value, datetime) and _is_naive(column) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    return value


def _fitting(now: datetime, column: Column[Any]) -> object:
    kind = column.type
    if isinstance(kind, Instant):
        return now
    if isinstance(kind, DateTime) or getattr(kind, "python_type", None) is datetime:
        return now if getattr(kind, "timezone", False) else now.replace(tzinfo=None)
    if isinstance(kind, Date):
        return now.date()
    raise DefinitionError(f"NOW cannot be written to {column}: it is {kind!r}, not a date or a time")


def _is_naive(column: Column[Any]) -> bool:
    return isinstance(column.type, DateTime) and not column.type.timezone
