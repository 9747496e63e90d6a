"""The checker can see: each mutant breaks one thing about tasks, and is caught."""

from collections.abc import Iterator

import pytest

from tests.simulation.mutants import applied
from tests.simulation.mutants.tasks import MUTANTS
from tests.simulation.schedule import Stage, theatre
from tests.simulation.workloads.tasks import Tasks

MOST_SEEDS = 1000

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with theatre((Tasks(),)) as made:
        yield made


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_checker_catches(stage: Stage, mutant: str) -> None:
    with applied(MUTANTS[mutant]):
        caught = any(stage.play(seed).wrong for seed in range(MOST_SEEDS))
    assert caught, f"{mutant}: nobody noticed in {MOST_SEEDS} schedules"
