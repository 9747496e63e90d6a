"""All mutants, and how one is caught: by the schedule that is known to show it, or by a search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.mutants import (
    Mutant,
    blocks,
    boundaries,
    fast,
    keeping,
    limits,
    rows,
    rules,
    runs,
    tasks,
    ticks,
)
from tests.simulation.schedule import Stage, quiet_collector
from tests.simulation.virtual import living_in, virtual
from tests.simulation.workloads import Workload
from tests.simulation.workloads.blocks import Blocks
from tests.simulation.workloads.limits import Limits
from tests.simulation.workloads.rows import Rows, ask, ask_only, write
from tests.simulation.workloads.rules import Rules
from tests.simulation.workloads.runs import Runs
from tests.simulation.workloads.shape_acts import fork, retry_step, revive, revive_child_at_last, then
from tests.simulation.workloads.shapes import Shapes
from tests.simulation.workloads.tasks import Tasks
from tests.simulation.workloads.ticks import Ticks
from tests.simulation.world import World

MOST_SEEDS = 300
AGAIN = ((revive,), (retry_step,), (revive, revive), (revive_child_at_last,))
STAGES: dict[str, tuple[Workload, ...]] = {
    "tasks": (Tasks(),),
    "runs": (Runs(), Shapes()),
    "rows": (Rows(),),
    "limits": (Limits(),),
    "blocks": (Blocks(),),
    "ticks": (Ticks(),),
    "rules": (Rules(),),
}
VARIANTS: dict[str, tuple[str, Workload]] = {
    "steering": ("tasks", Tasks(steers=0.9)),
    "children": ("runs", Runs(known=("nested",), most=8)),
    "signals": ("runs", Runs(asked=1.0)),
    "revivals": ("runs", Shapes(steering=((then,), (then, then)), again=AGAIN)),
    "forks": ("runs", Shapes(steering=((),), again=((fork,), (fork, fork), (fork, revive)))),
    "asking": ("rows", Rows(asks=(ask, ask_only, write), most=12)),
    "writers": ("rows", Rows(asks=(write,), most=6, held=0.2)),
    "families": ("rows", Rows(casts=(("fleets", "instances"), ("fleets", "orders", "instances")))),
}
"""Workloads with more of what shows some mutants, and the stage that knows their tasks."""
KINDS = {
    "tasks": tasks.MUTANTS | keeping.JOBS | boundaries.JOBS | fast.JOBS,
    "steering": tasks.STEERING,
    "runs": runs.MUTANTS | boundaries.RUNS | fast.RUNS,
    "children": runs.CHILDREN | keeping.RUNS,
    "signals": runs.SIGNALS,
    "revivals": keeping.KEPT,
    "forks": keeping.FORKED,
    "rows": rows.MUTANTS,
    "asking": rows.ASKING,
    "writers": rows.WRITERS,
    "families": rows.FAMILIES,
    "limits": limits.MUTANTS | fast.LIMITS,
    "blocks": blocks.MUTANTS | tasks.BLOCKS,
    "ticks": ticks.MUTANTS | boundaries.TICKS,
    "rules": rules.MUTANTS,
}
MUTANTS: dict[tuple[str, str], Mutant] = {
    (about, name): mutant for about, known in KINDS.items() for name, mutant in known.items()
}


@contextmanager
def stages() -> Iterator[dict[str, Stage]]:
    """One after the other: only one world is virtual at a time."""
    with virtual(), living_in(World(0)):
        made = {about: Stage(workloads) for about, workloads in STAGES.items()}
        made |= {about: made[stage].playing(workload) for about, (stage, workload) in VARIANTS.items()}
        with quiet_collector():
            yield made


def caught_by(stage: Stage, mutant: Mutant, most: int = MOST_SEEDS) -> int | None:
    """The first seed that shows it: the one on record, or else whichever is found."""
    seeds: list[int] = [mutant.seed, *range(most)]
    with mutant.applied():
        for seed in seeds:
            if stage.play(seed, mutant.lean).wrong:
                return seed
    return None


def rate(stage: Stage, mutant: Mutant, first: int, count: int) -> float:
    """How many of these schedules show it."""
    with mutant.applied():
        return sum(bool(stage.play(seed, mutant.lean).wrong) for seed in range(first, first + count)) / count
