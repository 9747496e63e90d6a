"""runtime/pump/lanes: a wake-up may be any text; only the name of a lane counts as one."""

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.queue.wakeups import LATER, READY, TIERS, YOURS, HeardLane, lane_of, ready
from penstock.runtime.pump.lanes import Lanes
from penstock.values.parse import is_queue

WORDS = st.sampled_from(
    [READY, YOURS, LATER, "ended", "rows", "chores", "", "default", "0", "-1", "9" * 30, "٣"]
)
GARBAGE = st.one_of(st.text(), st.lists(st.one_of(WORDS, st.text()), max_size=6).map("\t".join))
QUEUES = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}", fullmatch=True)


@given(GARBAGE)
@example("ready\tdefault\tgarbage")
@example("ready\tdefault\t99999999999999999999")
@example("ready\tdefault\t2147483648")
@example("yours\t٣\tdefault\t0")
def test_any_text_is_a_lane_or_nothing(text: str) -> None:
    lane = lane_of(text)
    known = Lanes(None, 5.0, True)
    if lane is not None:
        assert lane.kind in (READY, YOURS, LATER)
        assert lane.tier in TIERS
        assert 0 <= lane.hops <= 9
        known.hear(lane.queue, lane.tier)
    assert all(is_queue(queue) and tier in TIERS for queue, tier in known.floors)


@given(QUEUES, st.integers(TIERS.start, TIERS.stop - 1), st.integers(0, 9))
def test_what_is_told_is_understood(queue: str, tier: int, hops: int) -> None:
    assert lane_of(ready(queue, tier)) == HeardLane(READY, queue, tier)
    for kind in (YOURS, LATER):
        assert lane_of(f"{kind}\t{hops}\t{queue}\t{tier}") == HeardLane(kind, queue, tier, hops)
