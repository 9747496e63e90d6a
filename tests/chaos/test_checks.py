"""That the checker can see: a history in which every promise was kept, falsified in one place at a time."""

from collections.abc import Callable
from copy import deepcopy

import pytest

from tests.chaos import plan
from tests.chaos.checks import check
from tests.chaos.checks.accepted import lost
from tests.chaos.checks.jobs import settled_twice
from tests.chaos.facts import Execution, Facts, Job, Run, Schedule, Tick
from tests.chaos.recovery import recoveries, repeated
from tests.chaos.strike import Held, Strike

SECOND = 1_000_000


def job(id: str, task: str, *outcomes: str, status: str = "succeeded", **more: object) -> Job:
    """A job with a second between its attempts."""
    attempts = [
        Execution(
            n,
            f"process-{n}",
            n * SECOND,
            n * SECOND + 500_000,
            outcome,
            1 if outcome == "succeeded" else None,
        )
        for n, outcome in enumerate(outcomes, start=1)
    ]
    made = Job(
        id, task, key=f"operation-{id}", run=None, node=None, path=None, created_at=0, status=status, reason=None,
        generation=len(attempts), retry_count=0, crash_count=outcomes.count("crashed"), token=None,
        finished_at=len(attempts) * SECOND + 600_000, payload={}, executions=attempts,
    )  # fmt: skip
    for name, value in more.items():
        setattr(made, name, value)
    return made


def kept() -> Facts:
    """Every promise kept: a few jobs, one of which lost its process, a run, some rows."""
    facts = Facts(seed=1)
    doomed = job(
        "doomed", "doomed", "errored", "errored", status="failed", reason="retries_exhausted", retry_count=1
    )
    jobs = [job("plain", "plain", "crashed", "succeeded"), job("book", "book", "succeeded"), doomed]
    jobs += [
        job("charge", "charge", "released", "succeeded"),
        job("ordered", "plain", "succeeded", key="operation-7"),
    ]
    facts.jobs = {each.id: each for each in jobs}
    facts.jobs["charge"].executions[1].output = "name"
    facts.runs = {"run": Run("run", "enrich", "operation-2", "succeeded", 5 * SECOND, None)}
    steps = [job("gather", "gather", "succeeded", run="run", node="gather", path="", key=None)]
    steps += [
        job("told", "completed", "succeeded", payload={"run_id": "run", "status": "succeeded"}, key="k")
    ]
    steps[0].executions[0].output = plan.gathered(2, plan.width_of("enrich", 2))
    facts.jobs |= {step.id: step for step in steps}
    add_ticks(facts)
    facts.entries = [
        entry("scheduled", name="beat"),
        entry("scheduled", name="round"),
        entry("accepted", number=1, kind="plain", ids=["plain"]),
        entry("accepted", number=1, kind="doomed", ids=["doomed"]),
        entry("accepted", number=1, kind="book", ids=["book"]),
        entry("accepted", number=1, kind="charge", ids=["charge"]),
        entry("intend", number=7, kind="ordered"),
        entry("accepted", number=2, kind="enrich", ids=["run"]),
        entry("accepted", number=3, kind="counter", ids=[]),
        entry("bumped", number=4, counter=3),
        entry("once", job="charge", value="name"),
        entry("once", job="charge", value="name"),
        entry("join", run="run", values=steps[0].result),
        *[
            entry("begin", job=each.id, attempt=e.generation, task=each.task)
            for each in facts.jobs.values()
            for e in each.executions
        ],
    ]
    facts.dead_letters = {"doomed"}
    facts.bookings = [("book", 1)]
    facts.orders = {7}
    facts.bumps = {4: 3}
    facts.counters = {3: (plan.ROUNDS + 1, plan.ROUNDS + 1)}
    facts.fleets = {5: plan.ROUNDS}
    facts.ships = {50: (5, plan.ROUNDS, plan.ROUNDS)}
    facts.marks = [("counter", 3, n, n) for n in range(1, plan.ROUNDS + 2)]
    facts.marks += [
        (kind, row, n, n) for kind, row in (("fleet", 5), ("ship", 50)) for n in range(1, plan.ROUNDS + 1)
    ]
    facts.strikes = [
        Strike("kill_host", "host1", 1.0, 1_200_000, [Held("plain", 1, "host1")], ended=2.0, alone=True)
    ]
    return facts


def add_ticks(facts: Facts) -> None:
    """Two schedules: one skipped three ticks in one row and one in another, and fired the others."""
    fired = [Tick("tick", n * SECOND, n * SECOND, 1, "fired", f"beat-{n}") for n in (1, 2, 7)]
    skipped = [
        Tick("span", 5 * SECOND, 3 * SECOND, 3, "skipped_missed", None),
        Tick("tick", 6 * SECOND, 6 * SECOND, 1, "skipped_overlap", None),
    ]
    facts.schedules["beat"] = Schedule(SECOND, [*fired, *skipped])
    facts.schedules["round"] = Schedule(SECOND, [Tick("tick", SECOND, SECOND, 1, "fired", "round-1")])
    for n in (1, 2, 7):
        beat = job(f"beat-{n}", "beat", "succeeded", key=None, scheduled_for=n * SECOND)
        facts.jobs[beat.id] = beat
    facts.runs["round-1"] = Run("round-1", "round", None, "succeeded", 5 * SECOND, None, SECOND)
    payload = {"run_id": "round-1", "status": "succeeded"}
    facts.jobs["round-told"] = job("round-told", "completed", "succeeded", payload=payload)


def entry(what: str, **more: object) -> dict[str, object]:
    return {"what": what, "at": 0.0, "pid": 1, **more}


def test_a_kept_promise_is_not_reported() -> None:
    facts = kept()
    assert check(facts) == []
    assert (lost(facts), settled_twice(facts), repeated(facts)) == (0, 0, 2)


def test_recovery_is_from_the_fault_to_the_next_claim() -> None:
    (killed,) = recoveries(kept())
    assert (killed.kind, killed.held, killed.taken_back, killed.median) == ("kill_host", 1, 1, 0.8)


Falsify = Callable[[Facts], object]


def again(facts: Facts, id: str) -> None:
    """The same job succeeds once more, under a later claim."""
    more = deepcopy(facts.jobs[id].executions[-1])
    more.generation += 1
    facts.jobs[id].executions.append(more)
    facts.jobs[id].generation += 1


def struck(facts: Facts, kind: str) -> None:
    facts.strikes = [Strike(kind, "host1", 1.0, SECOND, [Held("plain", 1, "host1")], ended=2.0)]


def tell(facts: Facts, what: str, **more: object) -> None:
    facts.entries.append(entry(what, **more))


def follows_too_early(facts: Facts) -> None:
    facts.runs["next"] = Run("next", "inner", None, "skipped", 1, None)
    facts.chains.append(("run", "next"))


def tick_of(facts: Facts, second: int) -> Tick:
    return next(tick for tick in facts.schedules["beat"].ticks if tick.nominal == second * SECOND)


def between(facts: Facts) -> None:
    tick = tick_of(facts, 2)
    tick.first = tick.nominal = 2_500_000


def forget(facts: Facts, run: str, told: str) -> None:
    """The run and what told of it."""
    del facts.runs[run], facts.jobs[told]


def fire_again(facts: Facts) -> None:
    """A second job for a tick, made as the first one was."""
    facts.jobs["again"] = job("again", "beat", "succeeded", key=None, scheduled_for=SECOND)


FALSIFIED: dict[str, tuple[str, Falsify]] = {
    "a job that is gone": ("lost: plain", lambda f: f.jobs.pop("plain")),
    "a job that never ends": ("lost: plain plain", lambda f: setattr(f.jobs["plain"], "status", "available")),
    "a job that succeeds twice": ("settled twice: plain plain", lambda f: again(f, "plain")),
    "a job under two keys": ("names 2", lambda f: f.jobs.update(more=job("plain", "plain", "succeeded"))),
    "a wrong result": (
        "returned 2 instead of 1",
        lambda f: setattr(f.jobs["book"].executions[0], "output", 2),
    ),
    "a cancellation that did not come true": (
        "was cancelled",
        lambda f: tell(f, "cancelled", job="plain", done=True),
    ),
    "a retry spent by a crash": ("has spent 1 retries", lambda f: setattr(f.jobs["plain"], "retry_count", 1)),
    "a crash that nobody recorded": (
        "has spent 2 crashes",
        lambda f: setattr(f.jobs["plain"], "crash_count", 2),
    ),
    "a body run twice under one claim": (
        "began 2 times",
        lambda f: tell(f, "begin", job="book", attempt=1, task="book"),
    ),
    "a success without a body": (
        "never ran",
        lambda f: f.entries.remove(entry("begin", job="book", attempt=1, task="book")),
    ),
    "a dead letter too few": ("dead letters", lambda f: f.dead_letters.clear()),
    "a claim that is left": ("still held", lambda f: setattr(f.jobs["plain"], "token", 7)),
    "an effect twice": ("effect of transaction() 2 times", lambda f: f.bookings.append(("book", 1))),
    "an effect that is missing": ("completion without the effect", lambda f: f.bookings.clear()),
    "an effect without its job": ("without the job's completion", lambda f: f.bookings.append(("plain", 1))),
    "another value of once()": ("once() said", lambda f: tell(f, "once", job="charge", value="other")),
    "an order without its job": ("order 7", lambda f: f.jobs.pop("ordered")),
    "a run that never ends": (
        "is running when all is over",
        lambda f: f.runs.update(run=Run("run", "enrich", "operation-2", "running", None, None)),
    ),
    "a run with an open step": ("its step", lambda f: setattr(f.jobs["gather"], "status", "waiting")),
    "a step made twice": (
        "2 steps gather",
        lambda f: f.jobs.update(more=job("more", "gather", "succeeded", run="run", node="gather", path="")),
    ),
    "a join in the wrong order": (
        "a join of run",
        lambda f: tell(f, "join", run="run", values=["2.1a+2.1b", "2.0a+2.0b"]),
    ),
    "a join that fired twice": ("settled twice: gather", lambda f: again(f, "gather")),
    "a callback twice": (
        "told completed 2 times",
        lambda f: f.jobs.update(
            more=job("more", "completed", "succeeded", payload={"run_id": "run", "status": "succeeded"})
        ),
    ),
    "a callback that is missing": ("told completed 0 times", lambda f: f.jobs.pop("told")),
    "a run in the wrong state": ("must end succeeded", lambda f: setattr(f.runs["run"], "status", "failed")),
    "a run that follows too early": ("follows one", follows_too_early),
    "a chain that is lost": ("was to follow", lambda f: tell(f, "chained", run="run", following="nowhere")),
    "a signal that is lost": ("lost: the signal", lambda f: tell(f, "signalled", run="run", given=True)),
    "a stale apply": ("its applies wrote", lambda f: f.marks.append(("counter", 3, 2, 99))),
    "two applies of one claim": ("under one claim", lambda f: f.marks.append(("ship", 50, 4, 3))),
    "an apply that is missing": ("its applies wrote", lambda f: f.marks.pop()),
    "a lost update under the lock": (
        "raised 1 times",
        lambda f: f.counters.update({3: (plan.ROUNDS, plan.ROUNDS)}),
    ),
    "a child that its parent forgot": ("sailed 1 times", lambda f: f.ships.update({50: (5, 1, plan.ROUNDS)})),
    "a row that was never visited": ("stands at 0", lambda f: f.fleets.update({5: 0})),
    "a row that is lost": ("lost: counter 3", lambda f: f.counters.clear()),
    "a schedule that is lost": ("lost: schedule beat", lambda f: f.schedules.pop("beat")),
    "a schedule that never ticks": ("never ticked", lambda f: f.schedules["round"].ticks.clear()),
    "a tick without a row": (
        "the tick of 6000000 has no row",
        lambda f: f.schedules["beat"].ticks.remove(tick_of(f, 6)),
    ),
    "a tick with two rows": (
        "the tick of 2000000 has 2 rows",
        lambda f: f.schedules["beat"].ticks.append(tick_of(f, 2)),
    ),
    "a tick between two times": ("2500000 is no time at which", between),
    "a row that ends between two times": (
        "the row of 5500000 counts 3",
        lambda f: setattr(tick_of(f, 5), "nominal", 5_500_000),
    ),
    "a row that counts wrong": ("counts 2 ticks of 3", lambda f: setattr(tick_of(f, 5), "number", 2)),
    "a tick that fired twice": ("the tick of 1000000 fired 2 times", fire_again),
    "a tick whose job is gone": ("must have ['beat-2'], and has []", lambda f: f.jobs.pop("beat-2")),
    "a tick whose run is gone": (
        "must have ['round-1'], and has []",
        lambda f: forget(f, "round-1", "round-told"),
    ),
    "a tick that was skipped and fired": (
        "(skipped_overlap) must have [], and has ['beat-7']",
        lambda f: setattr(f.jobs["beat-7"], "scheduled_for", 6 * SECOND),
    ),
    "a job for a time that is no tick": (
        "beat again is of no tick",
        lambda f: f.jobs.update(again=job("again", "beat", "succeeded", scheduled_for=9 * SECOND)),
    ),
    "a run for no tick": (
        "is of no tick of schedule round",
        lambda f: f.runs.update(more=Run("more", "round", None, "succeeded", 1, None, 2 * SECOND)),
    ),
    "a job that does not know its tick": (
        "must have ['beat-1'], and has []",
        lambda f: setattr(f.jobs["beat-1"], "scheduled_for", None),
    ),
    "a tick that still waits": ("is waiting when", lambda f: setattr(tick_of(f, 6), "outcome", "waiting")),
    "a deploy that spends a crash": ("counted as a crash", lambda f: struck(f, "stop_host")),
    "an outage that spends a crash": ("counted as a crash", lambda f: struck(f, "kill_connections")),
    "a receipt that is left": ("1 rows are left in claims", lambda f: f.left.update(claims=1)),
    "a lock that is left": ("the lock of ships 50", lambda f: f.locked.append("ships 50")),
    "a process that is left": ("a process is left", lambda f: f.strays.append("7: python")),
    "a host that ends badly": ("ended with code 1", lambda f: f.codes.update(host1=1)),
    "a refusal": ("was refused", lambda f: tell(f, "trouble", number=1, error="no", passing=False)),
}


@pytest.mark.parametrize("what", FALSIFIED)
def test_a_broken_promise_is_reported(what: str) -> None:
    words, falsify = FALSIFIED[what]
    facts = kept()
    falsify(facts)
    assert any(words in wrong for wrong in check(facts)), check(facts)


def test_what_is_lost_is_counted() -> None:
    facts = kept()
    facts.jobs.pop("plain")
    facts.jobs["book"].status = "running"
    assert lost(facts) == 2


def test_a_crash_in_the_middle_of_two_faults_may_be_one() -> None:
    facts = kept()
    struck(facts, "stop_host")
    facts.strikes.append(Strike("kill_child", "host1", 2.0, ended=2.5))
    assert check(facts) == []
