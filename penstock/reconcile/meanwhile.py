"""Whether a value is another than it was: whatever types users have, and however those compare."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column
from sqlalchemy.engine import Dialect


def differs(column: Column[Any], before: object, now: object, dialect: Dialect) -> bool:
    """If they do not say that they are equal, they are if the same would be written for both."""
    if _are_equal(before, now):
        return False
    try:
        process = column.type.dialect_impl(dialect).bind_processor(dialect)
        return process is None or not _are_equal(_unwrapped(process(before)), _unwrapped(process(now)))
    except Exception:  # of somebody's own type, which cannot write such a value
        return True


def _unwrapped(bound: Any) -> Any:
    """Bytes, without what a driver may have around them."""
    return getattr(bound, "obj", bound)


def _are_equal(one: Any, other: Any) -> bool:
    """Some say so of each of their parts, and some are not even equal to themselves."""
    try:
        return bool(one == other) or bool(one != one and other != other)
    except Exception:
        return False
