"""The checker can see: each mutant breaks one thing, and is caught."""

import pytest

from tests.simulation.mutants import applied
from tests.simulation.mutants.tasks import MUTANTS
from tests.simulation.schedule import Stage

MOST_SEEDS = 400

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_checker_catches(stage: Stage, mutant: str) -> None:
    with applied(MUTANTS[mutant]):
        caught = any(stage.play(seed).wrong for seed in range(MOST_SEEDS))
    assert caught, f"{mutant}: nobody noticed in {MOST_SEEDS} schedules"
