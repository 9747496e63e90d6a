"""A workload: something done to every system in turn, and the figures it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Figures = dict[str, float]
EVERYBODY = ("penstock", "bare", "pgqueuer", "chancy", "procrastinate", "dbos")
QUEUES = tuple(name for name in EVERYBODY if name != "bare")
"""All but the bare loop, which is there to show what the database allows."""


@dataclass(frozen=True, slots=True)
class Workload:
    """`measure` is given a `Bench` and returns figures by name; each is a row of the table."""

    name: str
    title: str
    measure: Callable[[Any], Figures]
    rows: dict[str, str]
    """Figure to unit, in the order of the table; what is not here goes to the JSON only."""
    systems: Sequence[str] = EVERYBODY
    most_rounds: int | None = None
    """Slow ones are not repeated as often as the others."""


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")
