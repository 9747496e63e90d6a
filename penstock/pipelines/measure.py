"""What a plan may know of a value: which arm it chooses, and how many elements it has."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.values import tags


@dataclass(frozen=True, slots=True)
class Measure:
    """`width` is None for a value that cannot be expanded; `type` is what it is instead."""

    type: str = ""
    label: str = ""
    width: int | None = None


def to_match(raw: object) -> Measure:
    """What a switch needs to know: `str(value)` is the label."""
    return Measure(label=str(tags.read(raw)))


def to_expand(raw: object) -> Measure:
    """What an expand needs to know. A string is one value, not its letters."""
    found = tags.raw_elements(raw)
    return Measure(type=found) if isinstance(found, str) else Measure(width=len(found))
