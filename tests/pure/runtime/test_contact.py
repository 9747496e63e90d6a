"""runtime/liveness/outage_guard: a process that was cut off declares none dead before all could write heartbeats."""

import pytest

from penstock.runtime.liveness.outage_guard import OutageGuard

SILENCE = 30.0
DATABASE = 1_800_000_000
"""The database's clock is so far ahead."""


class Time:
    """The local clock, and the database's; both pass unless one of them is moved alone."""

    def __init__(self) -> None:
        self.local, self.database = 1_000.0, float(DATABASE)

    def __call__(self, seconds: float) -> None:
        self.local += seconds
        self.database += seconds

    def may_declare_dead(self, touch: OutageGuard) -> bool:
        """As the reaper asks: with a fresh reading of the database's clock."""
        touch.compare(int(self.database * 1_000_000), self.local, 0)
        return touch.may_declare_dead


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Time:
    """Let time pass."""
    passing = Time()
    monkeypatch.setattr("penstock.runtime.liveness.outage_guard.time.monotonic", lambda: passing.local)
    return passing


def fail(touch: OutageGuard) -> None:
    with pytest.raises(OSError, match="away"), touch.exchange():
        raise OSError("away")


def test_a_process_in_touch_may_declare_others_dead_at_once(wait: Time) -> None:
    touch = OutageGuard(SILENCE)
    assert wait.may_declare_dead(touch)
    with touch.exchange():
        wait(1)
    assert wait.may_declare_dead(touch)


def test_a_long_pause_between_two_exchanges_is_no_outage(wait: Time) -> None:
    touch = OutageGuard(SILENCE)
    with touch.exchange():
        pass
    wait(1_000)
    with touch.exchange():
        pass
    assert wait.may_declare_dead(touch)


def test_after_an_outage_everybody_is_given_time_to_be_heard(wait: Time) -> None:
    touch = OutageGuard(SILENCE)
    fail(touch)
    assert not wait.may_declare_dead(touch)
    wait(100)
    assert not wait.may_declare_dead(touch), "still cut off"
    with touch.exchange():
        pass
    assert not wait.may_declare_dead(touch)
    wait(SILENCE - 1)
    assert not wait.may_declare_dead(touch), "just back"
    wait(1)
    assert wait.may_declare_dead(touch)


def test_an_answer_that_took_very_long_counts_as_an_outage(wait: Time) -> None:
    touch = OutageGuard(SILENCE)
    with touch.exchange():
        wait(SILENCE / 2)
    assert not wait.may_declare_dead(touch)
    wait(SILENCE)
    assert wait.may_declare_dead(touch)


def test_a_process_that_asks_for_long_is_told_while_it_asks(wait: Time) -> None:
    with OutageGuard(SILENCE).exchange() as quick:
        assert quick()
        wait(SILENCE / 2)
        assert not quick()


def test_a_new_process_waits_until_the_living_can_have_been_heard(wait: Time) -> None:
    """All are silent right after an outage: that says nothing to one who was not there before."""
    touch = OutageGuard(SILENCE)
    touch.arrive(heartbeat=5)
    with touch.exchange():
        pass
    assert not wait.may_declare_dead(touch)
    wait(9)
    assert not wait.may_declare_dead(touch)
    wait(1)
    assert wait.may_declare_dead(touch)


def test_a_process_that_was_stopped_itself_gives_the_others_time_to_be_heard(
    wait: Time,
) -> None:
    """A machine that slept, or has no processor left: the process that wakes first must not find all others dead."""
    touch = OutageGuard(SILENCE)
    touch.heard(heartbeat=5)
    wait(SILENCE)
    assert not wait.may_declare_dead(touch), "no process has heard of us, either"
    touch.heard(heartbeat=5)
    assert not wait.may_declare_dead(touch), "just back"
    wait(5)
    touch.heard(heartbeat=5)
    assert not wait.may_declare_dead(touch), "just back"
    for _ in range(5):
        wait(5)
        touch.heard(heartbeat=5)
    assert wait.may_declare_dead(touch)


def test_a_process_heard_of_as_seldom_as_it_may_be_can_judge(wait: Time) -> None:
    touch = OutageGuard(SILENCE)
    for _ in range(3):
        touch.heard(heartbeat=SILENCE / 2)
        wait(SILENCE / 2 + 1)
        assert wait.may_declare_dead(touch)


def test_a_local_clock_that_leaps_ends_no_wait(wait: Time) -> None:
    touch = OutageGuard(SILENCE)
    touch.arrive(heartbeat=5)
    assert not wait.may_declare_dead(touch)
    wait.local += 9
    wait(1)
    assert not wait.may_declare_dead(touch), "the others have had one second"
    wait(9)
    assert wait.may_declare_dead(touch)


def test_an_outage_is_waited_out_by_the_clock_of_the_database(wait: Time) -> None:
    touch = OutageGuard(SILENCE)
    fail(touch)
    with touch.exchange():
        pass
    assert not touch.may_declare_dead, "it was not asked yet what time it is"
    assert not wait.may_declare_dead(touch)
    wait.local += 10 * SILENCE
    assert not wait.may_declare_dead(touch)
    wait(SILENCE)
    assert wait.may_declare_dead(touch)


def test_a_clock_that_is_set_back_prolongs_a_wait_by_no_more_than_the_silence(wait: Time) -> None:
    touch = OutageGuard(SILENCE)
    touch.arrive(heartbeat=5)
    assert not wait.may_declare_dead(touch)
    wait.database -= 3_600
    assert not wait.may_declare_dead(touch)
    wait(SILENCE / 2)
    touch.heard(heartbeat=5)
    wait(SILENCE / 2)
    assert wait.may_declare_dead(touch)
