"""All mutants, and how one is caught: by the schedule that is known to show it, or by a search."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.simulation.mutants import Mutant, blocks, limits, rows, runs, tasks
from tests.simulation.schedule import Stage, quiet_collector
from tests.simulation.virtual import living_in, virtual
from tests.simulation.workloads.blocks import Blocks
from tests.simulation.workloads.limits import Limits
from tests.simulation.workloads.rows import Rows
from tests.simulation.workloads.runs import Runs
from tests.simulation.workloads.shapes import Shapes
from tests.simulation.workloads.tasks import Tasks
from tests.simulation.world import World

MOST_SEEDS = 1000
STAGES = {
    "tasks": (Tasks(),),
    "runs": (Runs(), Shapes()),
    "rows": (Rows(),),
    "limits": (Limits(),),
    "blocks": (Blocks(),),
}
KINDS = {
    "tasks": tasks.MUTANTS,
    "runs": runs.MUTANTS,
    "rows": rows.MUTANTS,
    "limits": limits.MUTANTS,
    "blocks": blocks.MUTANTS,
}
MUTANTS: dict[tuple[str, str], Mutant] = {
    (about, name): mutant for about, known in KINDS.items() for name, mutant in known.items()
}


@contextmanager
def stages() -> Iterator[dict[str, Stage]]:
    """One after the other: only one world is virtual at a time."""
    with virtual(), living_in(World(0)):
        made = {about: Stage(workloads) for about, workloads in STAGES.items()}
        with quiet_collector():
            yield made


def caught_by(stage: Stage, mutant: Mutant, most: int = MOST_SEEDS) -> int | None:
    """The first seed that shows it: the one on record, or else whichever is found."""
    seeds: list[int] = [mutant.seed, *range(most)]
    with mutant.applied():
        for seed in seeds:
            if stage.play(seed).wrong:
                return seed
    return None
