"""Every kind of trouble really happens: a kind that is never drawn proves nothing."""

import pytest

from tests.simulation.fate import KINDS
from tests.simulation.schedule import Stage
from tests.simulation.temper import Lean

SEEDS = 100

MOST_SEEDS = 600
ONLY_LOSSES: Lean = {
    **dict.fromkeys(
        ["crash", "freeze", "stall", "linger", "stop", "jump", "delay", "statement", "commit"], 0.0
    ),
    "loss": 0.1,
    "trouble": 220,
    "outage": 0.0,
}
PLACES = ("begin", ".1", "commit", ".committed", "hand_over", "execute.before")
AWAITS = {
    "await in _awaited": "a handler on the loop, at any await of its own",
    "await in ended": "a statement in a block on the loop",
    "await in in_thread": "once() on the loop",
    "await in RowVisit.run_on_loop": "a reconciler on the loop",
    "await in Worker._watch_services": "the worker itself",
}

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def places(stage: Stage) -> set[str]:
    """Where trouble came, in a hundred schedules played on this stage, or more: some kinds are rare."""
    found: set[str] = set()
    for seed in range(MOST_SEEDS):
        if seed >= SEEDS and set(KINDS) <= set(stage.struck) and not _missing(found):
            break
        found |= set(stage.play(seed).world.places)
    return found


def _missing(places: set[str]) -> list[str]:
    return [part for part in PLACES if not any(place.endswith(part) for place in places)]


@pytest.mark.usefixtures("places")
def test_every_kind_of_trouble_happens(stage: Stage) -> None:
    assert set(KINDS) <= set(stage.struck), sorted(set(KINDS) - set(stage.struck))


def test_trouble_comes_at_every_kind_of_place(places: set[str]) -> None:
    """Between two statements, at a commit, after it, at a hand-over, before a handler."""
    assert not _missing(places)


def test_processes_are_taken_for_dead_at_every_kind_of_await_and_hand_over(stage: Stage) -> None:
    """Alive, and then awake again: at whatever they wait for on their loop, between a commit and what follows."""
    missing = {*AWAITS, "between two callbacks", "hand_over", "execute.before", "claim.committed"}
    for seed in range(MOST_SEEDS):
        verdict = stage.play(seed, ONLY_LOSSES)
        assert not verdict.wrong
        missing -= verdict.world.losses
        if not missing:
            return
    pytest.fail(f"no process was taken for dead at {sorted(missing)}")
