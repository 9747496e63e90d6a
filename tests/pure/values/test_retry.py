"""values/retry: the retry policy: what it refuses, how long it waits, what it retries, and how it is stored."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ConfigurationError
from penstock.values.retry import LONGEST_GROWN_DELAY, Retry, crash_delay, lineage


class Declined(ValueError):
    pass


class Fraud(Declined):
    pass


policies = st.builds(
    Retry,
    max=st.integers(0, 1000),
    delay=st.floats(0, 1e6),
    factor=st.floats(1, 10),
    jitter=st.floats(0, 1),
    on=st.lists(st.sampled_from([ValueError, Declined, "shop.Declined"]), max_size=3).map(tuple),
    never=st.lists(st.sampled_from([OSError, Fraud, "shop.Fraud"]), max_size=3).map(tuple),
)


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"max": -1}, "max=-1"),
        ({"max": 1.5}, "max=1.5"),
        ({"max": True}, "max=True"),
        ({"max": "3"}, "max='3'"),
        ({"delay": -0.1}, "delay=-0.1"),
        ({"delay": float("nan")}, "delay=nan"),
        ({"delay": None}, "delay=None"),
        ({"factor": 0.5}, "factor=0.5"),
        ({"factor": float("inf")}, "factor=inf"),
        ({"jitter": 1.1}, "jitter=1.1"),
        ({"on": (int,)}, "on=...): <class 'int'>"),
        ({"never": [ValueError("x")]}, "never="),
    ],
)
def test_a_wrong_policy_is_refused_by_name(wrong: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(names)):
        Retry(**wrong)


def test_a_delay_may_be_a_timedelta() -> None:
    assert Retry(delay=timedelta(minutes=1)) == Retry(delay=60)  # type: ignore[arg-type]


def test_a_number_of_retries_means_that_many_with_the_usual_delays() -> None:
    assert Retry.of(5) == Retry(max=5, delay=10, factor=2)
    assert Retry.of(None) == Retry(max=3, delay=10, factor=2)
    policy = Retry(max=1, delay=2)
    assert Retry.of(policy) is policy


@pytest.mark.parametrize("wrong", [True, 2.0, "3", [1]])
def test_anything_else_is_no_retry_policy(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="retries="):
        Retry.of(wrong)


def test_delays_grow_by_the_factor() -> None:
    policy = Retry(delay=10, factor=2, jitter=0)
    assert [policy.delay_for(n) for n in (1, 2, 3, 4)] == [10, 20, 40, 80]


@given(policies, st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_a_delay_is_never_shorter_than_asked_for_nor_longer_than_a_day_unless_asked_for(
    policy: Retry, retry: int, random: float
) -> None:
    delay = policy.delay_for(retry, random)
    assert policy.delay <= delay <= max(policy.delay, LONGEST_GROWN_DELAY) * (1 + policy.jitter)
    assert policy.delay_for(retry) <= delay
    assert policy.delay_for(retry) <= policy.delay_for(retry + 1)


def test_without_on_and_never_everything_is_retried() -> None:
    assert Retry().permits(KeyError())


@pytest.mark.parametrize("by_name", [False, True])
def test_on_and_never_match_subclasses_and_never_wins(by_name: bool) -> None:
    policy = Retry(on=(Declined, OSError), never=(Fraud,))
    if by_name:
        policy = Retry.from_dict(json.loads(json.dumps(policy.to_dict())))
        assert all(isinstance(kind, str) for kind in policy.on + policy.never)
    assert policy.permits(Declined())
    assert policy.permits(ConnectionResetError())
    assert not policy.permits(ValueError())
    assert not policy.permits(Fraud())


def test_an_error_from_another_process_is_matched_by_its_lineage() -> None:
    policy = Retry(never=(Declined,))
    assert not policy.permits(lineage(Fraud()))
    assert policy.permits(lineage(ValueError()))


def test_builtin_exceptions_may_be_named_shortly_and_a_single_one_alone() -> None:
    policy = Retry(on="ValueError")  # type: ignore[arg-type]
    assert policy.permits(Declined())
    assert not policy.permits(KeyError())


@given(policies)
def test_a_policy_survives_storage(policy: Retry) -> None:
    stored = json.loads(json.dumps(policy.to_dict()))
    again = Retry.from_dict(stored)
    assert again.to_dict() == policy.to_dict()
    for error in (ValueError(), Declined(), Fraud(), OSError(), KeyError()):
        assert again.permits(error) == policy.permits(error)


def test_the_usual_policy_takes_no_room_and_unknown_fields_are_passed_over() -> None:
    assert Retry().to_dict() == {}
    assert Retry.from_dict({"max": 7, "invented_later": 1}) == Retry(max=7)


def test_crashes_cost_no_time_at_first_and_then_more_and_more() -> None:
    assert [crash_delay(n) for n in range(7)] == [0, 0, 0, 0, 10, 20, 30]
    assert crash_delay(1_000_000) == 600
