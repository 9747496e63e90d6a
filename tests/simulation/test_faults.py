"""Every kind of trouble really happens: a kind that is never drawn proves nothing."""

import pytest

from tests.simulation.fate import KINDS
from tests.simulation.schedule import Stage

SEEDS = 100

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def places(stage: Stage) -> set[str]:
    """Where trouble came, in a hundred schedules played on this stage."""
    return {place for seed in range(SEEDS) for place in stage.play(seed).world.places}


@pytest.mark.usefixtures("places")
def test_every_kind_of_trouble_happens(stage: Stage) -> None:
    assert set(KINDS) <= set(stage.struck), sorted(set(KINDS) - set(stage.struck))


def test_trouble_comes_at_every_kind_of_place(places: set[str]) -> None:
    """Between two statements, at a commit, after it, at a hand-over, before a handler."""
    for part in ("begin", ".1", "commit", ".committed", "hand_over", "execute.before"):
        assert any(place.endswith(part) for place in places), part
