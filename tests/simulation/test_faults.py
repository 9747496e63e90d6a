"""Every kind of trouble really happens: a kind that is never drawn proves nothing."""

import pytest

from tests.simulation.fate import KINDS
from tests.simulation.schedule import Stage

SEEDS = 100

pytestmark = pytest.mark.simulation


def test_every_kind_of_trouble_happens(stage: Stage) -> None:
    for seed in range(SEEDS):
        stage.play(seed)
    assert set(KINDS) <= set(stage.struck), sorted(set(KINDS) - set(stage.struck))


def test_trouble_comes_at_every_kind_of_place(stage: Stage) -> None:
    """Between two statements, at a commit, after it, at a hand-over, before a handler."""
    places = {place for seed in range(SEEDS) for place in stage.play(seed).world.places}
    for part in ("begin", ".1", "commit", ".committed", "hand_over", "execute.before"):
        assert any(place.endswith(part) for place in places), part
