"""The checker can see: each mutant breaks one thing about runs, and is caught."""

from collections.abc import Iterator

import pytest

from tests.simulation.mutants import applied
from tests.simulation.mutants.runs import MUTANTS
from tests.simulation.schedule import Stage, theatre
from tests.simulation.workloads.runs import Runs

MOST_SEEDS = 400

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with theatre((Runs(),)) as made:
        yield made


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_checker_catches(stage: Stage, mutant: str) -> None:
    with applied(MUTANTS[mutant]):
        caught = any(stage.play(seed).wrong for seed in range(MOST_SEEDS))
    assert caught, f"{mutant}: nobody noticed in {MOST_SEEDS} schedules"
