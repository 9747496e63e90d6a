"""The checker can see: each mutant breaks one thing, and is caught."""

from collections.abc import Iterator

import pytest

from tests.simulation.mutants import boundaries
from tests.simulation.mutants.known import MOST_SEEDS, MUTANTS, caught_by, stages
from tests.simulation.schedule import Stage

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def made() -> Iterator[dict[str, Stage]]:
    with stages() as stages_by_name:
        yield stages_by_name


@pytest.mark.parametrize(("about", "mutant"), MUTANTS)
def test_the_checker_catches(made: dict[str, Stage], about: str, mutant: str) -> None:
    seed = caught_by(made[about], MUTANTS[about, mutant])
    assert seed is not None, f"{mutant}: no check noticed it in {MOST_SEEDS} schedules"


def test_a_broken_chore_stops_no_other(made: dict[str, Stage]) -> None:
    """Without the mutant that needs it: it is not the broken chore that is noticed."""
    with boundaries.BROKEN_CHORE.applied():
        for seed in range(10):
            assert not made["tasks"].play(seed).wrong
