"""values/outcome: From what happened to what is settled: every kind of event, both budgets (invariant 11)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ArgumentError, ConfigurationError, PayloadTooLarge, SerializationError
from penstock.values.failure import Failure
from penstock.values.outcome import (
    SHORTEST_SNOOZE,
    Cancel,
    Event,
    Outcome,
    Raised,
    Released,
    Returned,
    Snooze,
    Stopped,
    TimedOut,
    decide,
    decide_crash,
    interpret,
    raised,
)
from penstock.values.retry import Retry
from penstock.values.status import JobStatus, OutcomeKind, Reason

POLICY = Retry(max=2, delay=10, factor=3, jitter=0.5, never=(KeyError,))
BOOM = Raised(Failure.of(ValueError("boom")))


def test_a_value_succeeds_and_is_the_output() -> None:
    assert decide(Returned("5"), POLICY, 0) == Outcome(OutcomeKind.SUCCEEDED, output="5")
    assert decide(Returned("5"), POLICY, 0).status is JobStatus.SUCCEEDED


def test_an_error_is_retried_later_and_later_until_the_budget_is_spent() -> None:
    outcomes = [decide(BOOM, POLICY, retries) for retries in (0, 1, 2)]
    assert [outcome.delay for outcome in outcomes] == [10, 30, None]
    assert [outcome.status for outcome in outcomes] == ["scheduled", "scheduled", "failed"]
    assert [outcome.reason for outcome in outcomes] == [None, None, Reason.RETRIES_EXHAUSTED]
    assert [outcome.spends_retry for outcome in outcomes] == [True, True, False]


def test_jitter_comes_from_the_random_number_given() -> None:
    assert decide(BOOM, POLICY, 0, random=0.5).delay == 12.5


def test_a_retry_without_delay_is_available_at_once() -> None:
    outcome = decide(BOOM, Retry(max=1, delay=0), 0)
    assert (outcome.delay, outcome.status, outcome.final) == (0, JobStatus.AVAILABLE, False)


def test_an_error_that_is_never_retried_is_final_at_once() -> None:
    outcome = decide(raised(KeyError("x")), POLICY, 0)
    assert (outcome.status, outcome.reason) == (JobStatus.FAILED, Reason.NOT_RETRYABLE)


def test_a_timeout_is_an_error_with_a_name_of_its_own() -> None:
    first, last = decide(TimedOut(30), POLICY, 0), decide(TimedOut(30), POLICY, 2)
    assert (first.kind, first.delay, first.spends_retry) == (OutcomeKind.TIMED_OUT, 10, True)
    assert (last.status, last.reason) == (JobStatus.FAILED, Reason.TIMED_OUT)
    assert last.failure is not None
    assert "30 s" in last.failure.message


def test_a_snooze_spends_nothing_however_often() -> None:
    outcome = decide(Snooze(60), POLICY, 99)
    assert (outcome.kind, outcome.delay, outcome.spends_retry) == (OutcomeKind.SNOOZED, 60, False)


@pytest.mark.parametrize("seconds", [0, 0.0, 0.05])
def test_a_snooze_takes_a_moment_at_least(seconds: float) -> None:
    assert decide(Snooze(seconds), POLICY, 0).delay == SHORTEST_SNOOZE


def test_a_release_gives_the_job_back_at_once_and_spends_nothing() -> None:
    outcome = decide(Released(), POLICY, 99)
    assert (outcome.status, outcome.spends_retry) == (JobStatus.AVAILABLE, False)


@pytest.mark.parametrize("event", [Cancel("no stock"), Stopped("no stock")])
def test_a_cancellation_ends_the_job_with_its_reason(event: Event) -> None:
    outcome = decide(event, POLICY, 0)
    assert (outcome.status, outcome.reason) == (JobStatus.CANCELLED, Reason.CANCELLED)
    assert outcome.failure is not None
    assert outcome.failure.message == "no stock"
    assert decide(Cancel(), POLICY, 0).failure is None


def test_arguments_that_cannot_be_read_spend_retries_and_then_name_themselves() -> None:
    event = raised(ArgumentError("shop.pay", "expected int"), reading_arguments=True)
    assert decide(event, POLICY, 0).spends_retry
    assert decide(event, POLICY, 2).reason is Reason.ARGUMENTS_INVALID


def test_the_same_error_from_the_handler_itself_is_an_ordinary_one() -> None:
    event = raised(ArgumentError("shop.pay", "expected int"))
    assert decide(event, POLICY, 2).reason is Reason.RETRIES_EXHAUSTED


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SerializationError("no"), Reason.RESULT_NOT_SERIALIZABLE),
        (RecursionError("no"), Reason.RESULT_NOT_SERIALIZABLE),
        (PayloadTooLarge("the result", 3, 2), Reason.PAYLOAD_TOO_LARGE),
    ],
)
def test_a_result_that_cannot_be_stored_is_the_steps_error(error: Exception, reason: Reason) -> None:
    def encode(_: object) -> str:
        raise error

    event = interpret(object(), encode)
    assert decide(event, POLICY, 0).spends_retry
    assert decide(event, POLICY, 2).reason is reason


def test_requests_are_not_encoded_and_values_are() -> None:
    assert interpret(Snooze(5), repr) == Snooze(5)
    assert interpret(Cancel("x"), repr) == Cancel("x")
    assert interpret(5, repr) == Returned("5")


@pytest.mark.parametrize("wrong", [-1, float("nan"), float("inf"), "5", None, True])
def test_a_snooze_needs_a_number_of_seconds(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="Snooze"):
        Snooze(wrong)


def test_crashes_are_survived_up_to_the_budget_and_slower_and_slower() -> None:
    decisions = [decide_crash(count, 5) for count in (1, 3, 4, 5, 6)]
    assert [decision.status for decision in decisions] == [
        *("available", "available", "scheduled", "scheduled", "failed")
    ]
    assert [decision.delay for decision in decisions[:4]] == [0, 0, 10, 20]
    assert decisions[-1].reason is Reason.CRASHES_EXHAUSTED


def test_no_crash_budget_means_the_first_crash_fails_and_none_means_no_cap() -> None:
    assert decide_crash(1, 0).status is JobStatus.FAILED
    assert decide_crash(10**6, None) == (JobStatus.SCHEDULED, 600, None)


failures = st.builds(Failure.note, st.just("E"), st.text(max_size=20))
events = st.one_of(
    st.builds(Returned, st.just("1"), st.just(False)),
    st.builds(Raised, failures, st.none() | st.sampled_from(Reason)),
    st.builds(TimedOut, st.floats(0, 100)),
    st.builds(Snooze, st.floats(0, 100)),
    st.builds(Cancel, st.text(max_size=5)),
    st.builds(Stopped, st.text(max_size=5)),
    st.just(Released()),
)


@given(events, st.integers(0, 5), st.integers(0, 8), st.floats(0, 1, exclude_max=True))
def test_every_outcome_is_consistent(event: Event, most: int, spent: int, random: float) -> None:
    outcome = decide(event, Retry(max=most), spent, random)
    assert outcome.final == outcome.status.terminal
    assert (outcome.output is not None) == (outcome.status is JobStatus.SUCCEEDED)
    assert (outcome.reason is not None) == (outcome.status in (JobStatus.FAILED, JobStatus.CANCELLED))
    assert not (outcome.spends_retry and spent >= most)
    is_error = isinstance(event, (Raised, TimedOut))
    assert outcome.spends_retry == (is_error and spent < most)
