"""What must not cost anything has not: a stop, a stall, a short break of the network, an outage of the database.

Asked only of jobs to whose host nothing else happened around that time: two faults at once may well be a crash.
"""

from collections.abc import Iterator

from tests.chaos.facts import Facts
from tests.chaos.faults import SPEND_NOTHING
from tests.chaos.strike import Held, Strike
from tests.chaos.terms import REAP_AFTER

AROUND = 2 * REAP_AFTER + 2
"""For so long a fault may have an effect on what comes after it."""

HARMLESS = ("skew_clock", "fill_table", "hold_snapshot")


def budgets(facts: Facts) -> Iterator[str]:
    poisoned = {e.process for job in facts.jobs.values() if job.task == "poison" for e in job.executions}
    for strike in facts.strikes:
        if strike.kind not in SPEND_NOTHING:
            continue
        for held in strike.held:
            job = facts.jobs.get(held.job)
            ends = [e for e in job.executions if e.generation == held.generation] if job else []
            crashed = [e for e in ends if e.outcome == "crashed" and e.process not in poisoned]
            if crashed and not _disturbed(facts.strikes, strike, held):
                yield f"{job} was held on {held.host} during {strike.kind}, and that was counted as a crash"


def _disturbed(strikes: list[Strike], strike: Strike, held: Held) -> bool:
    """Something else happened to this host, or to all hosts, before or after."""
    return any(
        (other.hits_all or other.victim == held.host)
        and other is not strike
        and other.kind not in HARMLESS
        and other.began < strike.ended + AROUND
        and strike.began < other.ended + AROUND
        for other in strikes
    )
