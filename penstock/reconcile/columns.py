"""The columns a table needs to be reconciled, and the type of their times.

    lock_expires_at, lock_token, lock_owner   the holder of the row, and until when; NULL: none
    last_processed_at                         when a handler last ended with it; NULL: never
    next_process_at                           not before this; anything in the past: as soon as possible
    process_attempts                          errors in a row
    process_crashes                           holders in a row that never came back
    lock_wanted_by, lock_wanted_until         who waits for this row and gets the next turn

`next_process_at` is a request as well: a change while the row is being worked on is heard afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Column, Date, DateTime, Integer, String, text
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from penstock.errors import DefinitionError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OWNER_LENGTH = 255


class Instant(TypeDecorator[datetime]):
    """An aware time in UTC: TIMESTAMPTZ on PostgreSQL, DATETIME(6) on MySQL, text that sorts by time on SQLite."""

    impl = DateTime(timezone=True).with_variant(mysql.DATETIME(fsp=6), "mysql", "mariadb")
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else as_utc(value)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else as_utc(value)


def as_utc(value: datetime) -> datetime:
    """A time in UTC; a naive time counts as UTC."""
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


_DUE_DEFAULT = text("'1970-01-01 00:00:00.000000'")
_COUNT: dict[str, Any] = {"nullable": False, "default": 0, "server_default": text("0")}
_MAKERS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "lock_expires_at": lambda: (Instant(), {}),
    "lock_token": lambda: (BigInteger(), {}),
    "lock_owner": lambda: (String(OWNER_LENGTH), {}),
    "last_processed_at": lambda: (Instant(), {}),
    "next_process_at": lambda: (
        Instant(),
        {"nullable": False, "default": EPOCH, "server_default": _DUE_DEFAULT},
    ),
    "process_attempts": lambda: (Integer(), dict(_COUNT)),
    "process_crashes": lambda: (Integer(), dict(_COUNT)),
    "lock_wanted_by": lambda: (String(OWNER_LENGTH), {}),
    "lock_wanted_until": lambda: (Instant(), {}),
}
NAMES = tuple(_MAKERS)
OURS = frozenset(NAMES)
HOLDING = ("lock_expires_at", "lock_token", "lock_owner", "lock_wanted_by", "lock_wanted_until")
"""The columns that a table needs if its rows are only locked as related rows."""


def _column(name: str) -> Any:
    kind, options = _MAKERS[name]()
    return mapped_column(kind, **options)


def reconcilable_columns() -> list[Column[Any]]:
    """The same columns for a Core table: `Table("volumes", metadata, ..., *reconcilable_columns())`."""
    made = ((name, *make()) for name, make in _MAKERS.items())
    return [Column(name, kind, **options) for name, kind, options in made]


class Reconcilable:
    """A mixin for declarative models: `class Volume(Base, Reconcilable)`, also where Base makes them dataclasses."""

    if TYPE_CHECKING:
        lock_expires_at: Mapped[datetime | None]
        lock_token: Mapped[int | None]
        lock_owner: Mapped[str | None]
        last_processed_at: Mapped[datetime | None]
        next_process_at: Mapped[datetime]
        process_attempts: Mapped[int]
        process_crashes: Mapped[int]
        lock_wanted_by: Mapped[str | None]
        lock_wanted_until: Mapped[datetime | None]


# Without annotations, which would make them fields of a dataclass: SQLAlchemy refuses fields of a class that is none.
for _name in NAMES:
    setattr(Reconcilable, _name, _column(_name))


# NOW: the time of an apply by the database's clock, in the type of each column.


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
