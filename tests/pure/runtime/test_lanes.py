"""runtime/pump/lanes: which lanes and floors a claimer remembers."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.database.dialect import Lane
from penstock.runtime.pump.lanes import ASKED, KEPT, KNOWN, Lanes
from penstock.values.parse import QueueLimit, parse_queues

LANES = st.dictionaries(
    st.tuples(st.sampled_from("abcd"), st.integers(-3, 3)), st.integers(0, 1000), min_size=1
)


def lanes(queues: str | None = None, uses_floor: bool = True) -> Lanes:
    return Lanes(parse_queues(queues) if queues else None, 5.0, uses_floor)


@given(LANES)
def test_the_most_urgent_tier_comes_first(floors: dict[tuple[str, int], int]) -> None:
    known = lanes()
    known.learn(floors)
    tiers = [lane.tier for lane in known.above_floor(10, {})]
    assert tiers == sorted(tiers)
    assert len(tiers) == len(floors)


@given(LANES, LANES)
def test_a_floor_only_rises(first: dict[tuple[str, int], int], second: dict[tuple[str, int], int]) -> None:
    known = lanes()
    known.learn(first)
    known.learn(second)
    for lane in known.above_floor(10, {}):
        key = (lane.queue, lane.tier)
        assert lane.floor == max(first.get(key, 0), second.get(key, 0))


@given(LANES)
def test_a_sweep_begins_at_the_bottom(floors: dict[tuple[str, int], int]) -> None:
    known = lanes()
    known.learn(floors)
    assert {lane.floor for lane in known.from_bottom(floors, 10, {})} == {0}


def test_without_dead_rows_there_is_no_floor() -> None:
    known = lanes(uses_floor=False)
    known.learn({("a", 0): 7})
    assert known.above_floor(10, {}) == [Lane("a", 0, 0, 10)]


@given(st.integers(1, 50), st.integers(1, 20), st.integers(0, 30))
def test_no_queue_gets_more_than_its_limit_leaves(room: int, limit: int, busy: int) -> None:
    known = Lanes([QueueLimit("a", limit), QueueLimit("b")], 5.0, True)
    known.learn({("a", 0): 0, ("b", 0): 0})
    caps = {lane.queue: lane.limit for lane in known.above_floor(room, {"a": busy, "b": busy})}
    assert caps.get("a", 0) == max(0, min(room, limit - busy))
    assert caps["b"] == room


def test_queues_of_one_tier_take_turns() -> None:
    known = lanes()
    known.learn({("a", 0): 0, ("b", 0): 0, ("c", 0): 0})
    first = Counter(known.above_floor(1, {})[0].queue for _ in range(300))
    assert set(first) == {"a", "b", "c"}
    assert min(first.values()) > 30


def test_a_wake_up_makes_a_lane_known_without_forgetting_its_floor() -> None:
    known = lanes("a,b")
    known.learn({("a", 0): 9})
    known.hear("a", 0)
    known.hear("b", 1)
    known.hear("other", 0)
    assert known.floors == {("a", 0): 9, ("b", 1): 0}


def due(known: Lanes) -> bool:
    return known.sweep_is_due(found=0, wanted=10)


def test_a_worker_that_finds_something_is_not_kept_waiting() -> None:
    known = lanes()
    assert due(known)
    assert not known.sweep_is_due(found=10, wanted=10)
    known.swept([("a", 0)], seconds=0)
    known.force_sweep()
    assert due(known)
    assert not known.sweep_is_due(found=3, wanted=10)


def test_the_first_look_is_at_everything_and_the_next_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    known = lanes()
    assert due(known)
    known.swept([("a", 0)], seconds=0.01)
    assert not due(known)
    now += 0.3
    assert due(known)
    known.swept([("a", 0)], seconds=100)
    now += 4.9
    assert not due(known), "a costly sweep is rare, but never rarer than the interval"
    now += 0.2
    assert due(known)
    known.swept([], seconds=0)
    known.force_sweep()
    assert due(known)


MANY = st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-500, 500)), max_size=600)


@given(MANY)
def test_a_lane_in_which_nothing_was_found_is_forgotten(told: list[tuple[str, int]]) -> None:
    known = lanes()
    known.learn({("mail", 0): 5})
    for queue, tier in told:
        known.hear(queue, tier)
    assert len(known.floors) <= KNOWN
    while len(asked := known.above_floor(10, {})) > 1:
        assert len(asked) <= ASKED
        known.emptied([(lane.queue, lane.tier) for lane in asked])
    assert known.floors == {("mail", 0): 5} or ("mail", 0) not in known.floors


@given(st.integers(1, 400))
def test_of_lanes_that_have_run_dry_the_last_few_are_kept_with_their_floors(number: int) -> None:
    known = lanes()
    for tier in range(number):
        known.learn({("a", tier): tier + 1})
        known.emptied([("a", other) for other in range(tier + 1)])
    assert known.floors == {("a", tier): tier + 1 for tier in range(max(0, number - KEPT), number)}


def test_the_most_urgent_are_remembered_and_the_others_found_again() -> None:
    known = lanes()
    known.swept([], seconds=0)
    for tier in range(KNOWN + 10):
        known.hear("a", -tier)
    assert len(known.floors) == KNOWN
    assert min(tier for _, tier in known.floors) == -(KNOWN + 9)
    assert due(known)


def test_a_sweep_that_saw_only_a_part_is_gone_on_with() -> None:
    known = lanes()
    part = [("a", tier) for tier in range(ASKED)]
    known.swept(part, seconds=0)
    assert known.sweeps_from == part[-1]
    known.swept([("b", 0)], seconds=0)
    assert known.sweeps_from < ("a", -(2**31) + 1)


@pytest.mark.parametrize(
    ("queue", "tier"), [("", 0), ("a b", 0), ("x" * 101, 0), ("a\n", 0), ("a", 2**31), ("a", -(2**31) - 1)]
)
def test_what_cannot_be_a_lane_is_none(queue: str, tier: int) -> None:
    known = lanes()
    assert not known.hear(queue, tier)
    assert not known.floors
