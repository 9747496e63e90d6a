"""runtime/liveness/outage_guard: a process that was cut off declares none dead before all could write heartbeats."""

from collections.abc import Callable

import pytest

from penstock.runtime.liveness.outage_guard import OutageGuard

SILENCE = 30.0


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let time pass."""
    now = 1_000.0

    def pass_by(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr("penstock.runtime.liveness.outage_guard.time.monotonic", lambda: now)
    return pass_by


def fail(touch: OutageGuard) -> None:
    with pytest.raises(OSError, match="away"), touch.exchange():
        raise OSError("away")


def test_a_process_in_touch_may_judge_at_once(wait: Callable[[float], None]) -> None:
    touch = OutageGuard(SILENCE)
    assert touch.may_judge
    with touch.exchange():
        wait(1)
    assert touch.may_judge


def test_a_long_pause_between_two_exchanges_is_no_outage(wait: Callable[[float], None]) -> None:
    touch = OutageGuard(SILENCE)
    with touch.exchange():
        pass
    wait(1_000)
    with touch.exchange():
        pass
    assert touch.may_judge


def test_after_an_outage_everybody_is_given_time_to_be_heard(wait: Callable[[float], None]) -> None:
    touch = OutageGuard(SILENCE)
    fail(touch)
    assert not touch.may_judge
    wait(100)
    assert not touch.may_judge, "still cut off"
    with touch.exchange():
        pass
    wait(SILENCE - 1)
    assert not touch.may_judge, "just back"
    wait(1)
    assert touch.may_judge


def test_an_answer_that_took_very_long_counts_as_an_outage(wait: Callable[[float], None]) -> None:
    touch = OutageGuard(SILENCE)
    with touch.exchange():
        wait(SILENCE / 2)
    assert not touch.may_judge
    wait(SILENCE)
    assert touch.may_judge


def test_a_process_that_asks_for_long_is_told_while_it_asks(wait: Callable[[float], None]) -> None:
    with OutageGuard(SILENCE).exchange() as quick:
        assert quick()
        wait(SILENCE / 2)
        assert not quick()


def test_a_new_process_waits_until_the_living_can_have_been_heard(wait: Callable[[float], None]) -> None:
    """All are silent right after an outage: that says nothing to one who was not there before."""
    touch = OutageGuard(SILENCE)
    touch.arrive(heartbeat=5)
    with touch.exchange():
        pass
    wait(9)
    assert not touch.may_judge
    wait(1)
    assert touch.may_judge


def test_a_process_that_was_stopped_itself_gives_the_others_time_to_be_heard(
    wait: Callable[[float], None],
) -> None:
    """A machine that slept, or has no processor left: whoever wakes first must not find all others dead."""
    touch = OutageGuard(SILENCE)
    touch.heard(heartbeat=5)
    wait(SILENCE)
    assert not touch.may_judge, "nobody has heard of us, either"
    touch.heard(heartbeat=5)
    wait(5)
    touch.heard(heartbeat=5)
    assert not touch.may_judge, "just back"
    for _ in range(5):
        wait(5)
        touch.heard(heartbeat=5)
    assert touch.may_judge


def test_a_process_heard_of_as_seldom_as_it_may_be_can_judge(wait: Callable[[float], None]) -> None:
    touch = OutageGuard(SILENCE)
    for _ in range(3):
        touch.heard(heartbeat=SILENCE / 2)
        wait(SILENCE / 2 + 1)
        assert touch.may_judge
