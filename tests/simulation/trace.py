"""A schedule as a person reads it: what happened when, and what is wrong with it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.simulation.watching import STATE
from tests.simulation.world import SECOND, START, World

if TYPE_CHECKING:
    from tests.simulation.schedule import Verdict


def report(verdict: Verdict) -> str:
    """The whole story of a failure, and how to see it again."""
    lines = [
        f"seed {verdict.seed}:",
        *(f"  {wrong}" for wrong in verdict.wrong),
        "",
        *lines_of(verdict.world),
    ]
    return "\n".join([*lines, "", f"make simulate SEED={verdict.seed} plays this again"])


def lines_of(world: World) -> Iterator[str]:
    for at, who, *what in world.trace:
        time = f"{(at - START) / SECOND:10.4f}"  # type: ignore[operator]
        if what[0] != "commit":
            yield f"{time} {who}: {' '.join(map(str, what))}"
            continue
        for _, kind, *facts in what[2]:  # type: ignore[attr-defined]
            shown = _change(facts) if kind == "state" else " ".join(map(str, facts))
            yield f"{time} {who}: commits {what[1]}: {kind} {shown}"


def _change(facts: list[Any]) -> str:
    """Of a state, only what has changed."""
    job_id, before, after = facts[0], facts[1 : 1 + len(STATE)], facts[1 + len(STATE) :]
    changes = [
        f"{name}: {old} → {new}" if before[0] is not None else f"{name}: {new}"
        for name, old, new in zip(STATE, before, after, strict=True)
        if old != new
    ]
    return f"{job_id} {', '.join(changes)}"


def digest(world: World) -> str:
    """The same for the same schedule, on every machine and in every process."""
    return hashlib.sha256("\n".join(lines_of(world)).encode()).hexdigest()
