"""The checker can see: each mutant breaks one thing, and is caught."""

from collections.abc import Iterator

import pytest

from tests.simulation.mutants import applied, rows, runs, tasks
from tests.simulation.schedule import Stage
from tests.simulation.virtual import living_in, virtual
from tests.simulation.workloads.rows import Rows
from tests.simulation.workloads.runs import Runs
from tests.simulation.workloads.shapes import Shapes
from tests.simulation.workloads.tasks import Tasks
from tests.simulation.world import World

MOST_SEEDS = 1000
STAGES = {"tasks": (Tasks(),), "runs": (Runs(), Shapes()), "rows": (Rows(),)}
MUTANTS = {
    (about, name): changes
    for about, known in (("tasks", tasks.MUTANTS), ("runs", runs.MUTANTS), ("rows", rows.MUTANTS))
    for name, changes in known.items()
}

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def stages() -> Iterator[dict[str, Stage]]:
    """One after the other: only one world is virtual at a time."""
    with virtual(), living_in(World(0)):
        yield {about: Stage(workloads) for about, workloads in STAGES.items()}


@pytest.mark.parametrize(("about", "mutant"), MUTANTS)
def test_the_checker_catches(stages: dict[str, Stage], about: str, mutant: str) -> None:
    with applied(MUTANTS[about, mutant]):
        caught = any(stages[about].play(seed).wrong for seed in range(MOST_SEEDS))
    assert caught, f"{mutant}: nobody noticed in {MOST_SEEDS} schedules"
