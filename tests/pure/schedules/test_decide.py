"""schedules/decide: decisions about due ticks, against a list of all of them."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.schedules.decide import BATCH, GRACE, ROWS, Decision, Missed, TickPolicy, decide
from penstock.schedules.times import SECOND, Spec, ticks

POLICIES = st.builds(
    TickPolicy,
    st.sampled_from(Missed),
    st.none() | st.integers(1, 2000 * SECOND),
    st.integers(1, 300),
)


@given(st.integers(1, 300), POLICIES, st.integers(0, 5000 * SECOND))
def test_every_tick_is_decided_about_once(every: int, policy: TickPolicy, late: int) -> None:
    spec = Spec(None, "UTC", every * SECOND, 0)
    first = every * SECOND * 1000
    now = first + late
    fired: list[int] = []
    counted, next_at = 0, first
    for _ in range(200):
        decision = decide(spec, policy, next_at, now)
        fired += decision.fired
        counted += len(decision.fired) + sum(each.number for each in decision.skipped)
        assert len(decision.fired) <= BATCH
        assert len(decision.skipped) <= ROWS + 1
        assert decision.next_at is not None
        if not (decision.fired or decision.skipped):
            break
        next_at = decision.next_at
    due = list(ticks(spec, first - 1, now))
    assert counted == len(due)
    assert fired == sorted(set(fired))
    assert next_at > now
    assert set(fired) <= set(due)
    assert fired == expected(policy, due, now)


def expected(policy: TickPolicy, due: list[int], now: int) -> list[int]:
    """Said once more, in the plainest way."""
    if not due:
        return []
    grace = policy.window if policy.missed is Missed.SKIP and policy.window is not None else GRACE
    if now - due[0] <= grace:
        return due
    young = [each for each in due if policy.window is None or now - each <= policy.window]
    return {Missed.SKIP: [], Missed.LATEST: young[-1:], Missed.ALL: young[-policy.limit :]}[policy.missed]


def test_nothing_is_due() -> None:
    spec = Spec(None, "UTC", 60 * SECOND, 0)
    assert decide(spec, TickPolicy(), 120 * SECOND, 100 * SECOND) == Decision([], [], 120 * SECOND)
