"""How people write quantities: "30s", "14d", "1 MiB", "mail:10,default"."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_BYTES = {"": 1, "b": 1, "k": 1024, "kb": 1000, "kib": 1024, "m": 1024**2, "mb": 1000**2, "mib": 1024**2}
_BYTES |= {"g": 1024**3, "gb": 1000**3, "gib": 1024**3}
_TOO_MUCH = 1e300
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*")
_QUEUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}")


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """A queue to work on, and how many of its jobs one process runs at a time (None: up to `concurrency`)."""

    name: str
    limit: int | None = None

    def __post_init__(self) -> None:
        if not _QUEUE.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} is not a queue name: letters, digits, '_', '-' and '.', at most 100"
            )
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"the limit of queue {self.name!r} must be at least 1, not {self.limit}")

    def __str__(self) -> str:
        return self.name if self.limit is None else f"{self.name}:{self.limit}"


def parse_seconds(text: str | float | timedelta) -> float:
    """Seconds from a number, a `timedelta`, or text such as "90", "500ms", "30s", "5m", "2h", "14d"."""
    if isinstance(text, timedelta):
        return text.total_seconds()
    if isinstance(text, str):
        number, unit = _quantity(
            text, _SECONDS.keys() | {""}, 'a duration such as 30, "500ms", "5m" or "14d"'
        )
        return number * _SECONDS.get(unit, 1.0)
    if isinstance(text, bool) or not abs(text) < _TOO_MUCH:
        raise ValueError("give a number of seconds")
    return float(text)


def parse_bytes(text: str | int) -> int:
    """Bytes from a number or text such as "65536", "512 KiB", "1MB"."""
    if isinstance(text, str):
        number, unit = _quantity(text, _BYTES.keys(), 'a size such as 65536 or "512 KiB"')
        return int(number * _BYTES[unit])
    if isinstance(text, bool):
        raise ValueError("give a number of bytes")
    return text


def parse_queues(text: str) -> tuple[QueueLimit, ...]:
    """Queues from text such as "mail:10,default": names, each with an optional limit."""
    queues: list[QueueLimit] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, limit = (piece.strip() for piece in part.partition(":"))
        if colon and not limit.isdigit():
            raise ValueError(f"{part!r}: write NAME or NAME:LIMIT, such as mail:10")
        queues.append(QueueLimit(name, int(limit) if colon else None))
    if not queues:
        raise ValueError("name at least one queue, such as mail:10,default")
    if len({queue.name for queue in queues}) < len(queues):
        raise ValueError(f"{text!r} names a queue twice")
    return tuple(queues)


def read_queues(given: object) -> tuple[QueueLimit, ...] | None:
    """Queues from text, from texts one by one, or limits by name; None stays None and means all."""
    if given is None:
        return None
    if isinstance(given, str):
        return parse_queues(given)
    if isinstance(given, Mapping):
        given = [name if limit is None else f"{name}:{limit}" for name, limit in given.items()]
    several = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(queue, str | QueueLimit) for queue in several):
        raise ValueError('give a text or a list of texts, such as ["mail:10", "default"]')
    return parse_queues(",".join(map(str, several)))


def _quantity(text: str, units: Container[str], expected: str) -> tuple[float, str]:
    found = _QUANTITY.fullmatch(text.lower())
    if found is None or found[2] not in units:
        raise ValueError(f"give {expected}")
    return float(found[1]), found[2]
