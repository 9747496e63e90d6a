"""database/clock_watch: how a process notices that the database's clock was set, by what it has waited itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.database import clock_watch
from penstock.database.clock_watch import LONGEST_DOUBT, TOLERANCE, ClockWatch

SILENCE = 30.0


class Clocks:
    """Our own clock, and the database's, which can be set."""

    def __init__(self) -> None:
        self.ours = 1_000.0
        self.send_ahead = 500_000.0

    def monotonic(self) -> float:
        return self.ours

    def ask(self, watch: ClockWatch, takes: float = 0.0, answered_after: float = 0.0) -> float:
        asked = self.ours
        told = self.ours + self.send_ahead + answered_after
        self.ours += takes
        return watch.compare(int(told * 1_000_000), asked)


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    clocks = Clocks()
    monkeypatch.setattr(clock_watch, "time", clocks)
    return clocks


def test_a_step_forward_puts_judgement_off_for_as_long_as_it_takes_to_be_heard(clocks: Clocks) -> None:
    watch = ClockWatch(SILENCE)
    assert clocks.ask(watch) == 0
    clocks.ours += 10
    clocks.send_ahead += 20
    assert clocks.ask(watch) == pytest.approx(20)
    assert not watch.is_trusted
    clocks.ours += SILENCE - 1
    assert clocks.ask(watch) == 0, "told once"
    assert not watch.is_trusted
    clocks.ours += 1
    assert watch.is_trusted


def test_a_step_back_is_told_and_makes_no_process_look_silent(clocks: Clocks) -> None:
    watch = ClockWatch(SILENCE)
    clocks.ask(watch)
    clocks.send_ahead -= 600
    assert clocks.ask(watch) == pytest.approx(-600)
    assert watch.is_trusted


def test_small_steps_add_up(clocks: Clocks) -> None:
    watch, step = ClockWatch(SILENCE), SILENCE * TOLERANCE * 0.6
    clocks.ask(watch)
    for found in (False, True):
        clocks.ours += 5
        clocks.send_ahead += step
        assert bool(clocks.ask(watch)) is found


def test_a_clock_that_is_set_all_the_time_does_not_keep_the_dead_for_ever(clocks: Clocks) -> None:
    watch = ClockWatch(SILENCE)
    clocks.ask(watch)
    began = clocks.ours
    while not watch.is_trusted or clocks.ours == began:
        clocks.ours += 5
        clocks.send_ahead += 20
        clocks.ask(watch)
        assert clocks.ours <= began + LONGEST_DOUBT * SILENCE + 10


@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 20), st.floats(0, 1), st.floats(-5e-4, 5e-4)), max_size=20
    )
)
def test_however_slow_the_answers_a_clock_that_only_drifts_is_never_taken_for_set(
    exchanges: list[tuple[float, float, float, float]],
) -> None:
    """Somewhere between the question and the answer it was read, and a clock that is slewed gains 1 in 2000."""
    clocks = Clocks()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock_watch, "time", clocks)
        watch = ClockWatch(SILENCE)
        for pause, takes, at, drift in exchanges:
            clocks.ours += pause
            clocks.send_ahead += pause * drift
            assert clocks.ask(watch, takes, takes * at) == 0
        assert watch.is_trusted
