"""How long it took: from a fault to the last of the jobs then held by its victim being claimed anew or settled.

All by the database's clock, from the history. A job that was settled before the fault could reach it says nothing.
"""

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from penstock.values.retry import crash_delay
from tests.chaos.facts import Facts, Job
from tests.chaos.strike import Strike

TAKEN_BACK = ("crashed", "released")
SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Recovery:
    """All faults of one kind."""

    kind: str
    times: int
    held: int
    """Jobs that the victims held, all together."""
    taken_back: int
    """Of those, how many had to be given to another process."""
    alone: int
    """Faults with nothing else going on, of which there is something to measure."""
    median: float | None
    """Of those."""
    longest: float | None
    """Of those."""
    longest_of_all: float | None
    """With others that came on top."""


def recoveries(facts: Facts) -> list[Recovery]:
    kinds: dict[str, list[Strike]] = defaultdict(list)
    for strike in facts.strikes:
        kinds[strike.kind].append(strike)
    return [_of_kind(facts, kind, strikes) for kind, strikes in sorted(kinds.items())]


def repeated(facts: Facts) -> int:
    """Bodies that began under a claim which did not bring the job forward: the work was done again."""
    ended = {
        (job.id, execution.generation)
        for job in facts.jobs.values()
        for execution in job.executions
        if execution.outcome not in TAKEN_BACK
    }
    return sum((entry["job"], entry["attempt"]) not in ended for entry in facts.told("begin"))


def _of_kind(facts: Facts, kind: str, strikes: list[Strike]) -> Recovery:
    took = [(_recovery(facts, strike), strike.alone) for strike in strikes]
    alone = [seconds for seconds, alone in took if seconds is not None and alone]
    every = [seconds for seconds, _ in took if seconds is not None]
    held = [held for strike in strikes for held in strike.held if held.job in facts.jobs]
    back = sum(_outcome(facts.jobs[one.job], one.generation) in TAKEN_BACK for one in held)
    middle = median(alone) if alone else None
    worst, worst_of_all = max(alone, default=None), max(every, default=None)
    return Recovery(kind, len(strikes), len(held), back, len(alone), middle, worst, worst_of_all)


def _recovery(facts: Facts, strike: Strike) -> float | None:
    if strike.at is None:
        return None
    ends = [_over(facts.jobs[held.job], held.generation) for held in strike.held if held.job in facts.jobs]
    after = [(end - strike.at) / SECOND for end in ends if end is not None and end > strike.at]
    return max(after, default=None)


def _over(job: Job, generation: int) -> int | None:
    """When this claim was over: settled, or the job claimed anew, or, if it has to wait for that, taken back."""
    crashes = [e for e in job.executions if e.generation <= generation and e.outcome == "crashed"]
    if crashes and crashes[-1].generation == generation and crash_delay(len(crashes)):
        return crashes[-1].finished_at
    if _outcome(job, generation) in (*TAKEN_BACK, None):
        later = [e.started_at for e in job.executions if e.generation > generation]
        return min(later) if later else job.finished_at
    if generation == job.generation:
        return job.finished_at
    return next(e.finished_at for e in job.executions if e.generation == generation)


def _outcome(job: Job, generation: int) -> str | None:
    return next((e.outcome for e in job.executions if e.generation == generation), None)
