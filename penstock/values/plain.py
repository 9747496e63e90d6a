"""Turns records into plain values for JSON: mappings, lists, texts, and instants in ISO 8601, UTC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum


def plain(value: object, name: str = "") -> object:
    """Dataclasses and models as mappings, and microseconds as instants where the name says that they are."""
    if isinstance(value, Enum):
        value = value.value
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    elif callable(dump := getattr(value, "model_dump", None)):
        value = dump()
    if isinstance(value, Mapping):
        return {str(key): plain(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if name.endswith("_at") and isinstance(value, int):
        return instant(value)
    return value


def instant(micros: int) -> str:
    """An instant in ISO 8601; a number out of range is returned unchanged."""
    try:
        return moment(micros).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(micros)


def moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1_000_000, UTC)


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number and its noun: `1 job`, `2 jobs`."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


def were(number: int) -> str:
    """A number and its verb: `1 was`, `2 were`."""
    return counted(number, "was", "were")
