"""pipelines/plan/losers, pipelines/lifecycle/signals: a `wait_for` that a decided `first` no longer needs: it is
skipped, and the run ends without it.
"""

from __future__ import annotations

from threading import Barrier, Event, Thread
from typing import Any

import pytest

from penstock import Penstock, first, wait_for
from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused
from penstock.queue.jobs import Attempt, Claim
from penstock.queue.settle import settle
from penstock.testing import drain, travel
from penstock.values.outcome import Outcome
from penstock.values.status import JobStatus, OutcomeKind, Reason
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.conformance.rows import rows

LOST = (JobStatus.SKIPPED, Reason.FIRST_DECIDED)


@pytest.fixture
def same(app: Penstock) -> Any:
    @app.task(name="same", retries=0)
    def same(value: Any = None, *more: Any) -> Any:
        return value

    return same


def ends(run: Any) -> dict[str, tuple[JobStatus, Reason | None]]:
    return {f"{step.key}{list(step.path) or ''}": (step.status, step.reason) for step in run.steps()}


def test_a_wait_that_lost_is_skipped_with_its_timers(app: Penstock, same: Any) -> None:
    told: list[int] = []

    @app.task(name="nudge")
    def nudge(count: int) -> None:
        told.append(count)

    @app.pipeline(name="racing")
    def racing() -> Any:
        asked = wait_for("ask", timeout=60, remind=nudge, remind_every=20)
        return same.options(key="after", delay=30)(first(same.options(delay=10)("work"), asked))

    run = racing.trigger()
    drain(app)
    assert ends(run)["ask"] == (JobStatus.WAITING, None)
    with travel(app, 11):
        drain(app)
        assert ends(run)["ask"] == LOST
        assert run.signal("ask", "too late") is True, "recorded, as for a wait that has timed out"
        drain(app)
        assert (run.status, ends(run)["ask"]) == ("running", LOST)
    with travel(app, 200):
        drain(app)
    assert (run.status, run.result(0), run.reasons, told) == ("succeeded", "work", [], [])
    asked = next(step for step in run.steps() if step.key == "ask")
    assert rows(app, "SELECT outcome FROM {executions} WHERE job_id = :id", id=asked.id) == []
    with pytest.raises(ActionRefused):
        run.signal("other")


def test_a_signal_wins_and_what_runs_goes_on(app: Penstock, same: Any) -> None:
    @app.pipeline(name="racing")
    def racing() -> Any:
        return first(same.options(delay=3600)("work"), wait_for("a"), wait_for("b"))

    run = racing.trigger()
    drain(app)
    run.signal("b", "yes")
    drain(app)
    found = ends(run)
    assert (found["a"], found["b"][0], found["same"][0]) == (LOST, "succeeded", "scheduled")
    assert run.status == "running", "steps are not stopped"
    with travel(app, 3700):
        drain(app)
    assert run.result(0) == "yes"


def test_what_something_else_uses_is_waited_for(app: Penstock, same: Any) -> None:
    @app.pipeline(name="read")
    def read() -> Any:
        w = wait_for("w")
        return [same.options(key="reads")(w), first(same(1), w)]

    @app.pipeline(name="followed")
    def followed() -> Any:
        w = wait_for("w")
        same.options(key="next", after=[w])(2)
        return first(same(1), w)

    @app.pipeline(name="returned")
    def returned() -> Any:
        w = wait_for("w")
        return [first(same(1), w), w]

    @app.pipeline(name="twice")
    def twice() -> Any:
        w = wait_for("w")
        return [first(same(1), w), first(same.options(delay=3600)(2), w)]

    runs = [pipeline.trigger() for pipeline in (read, followed, returned, twice)]
    drain(app)
    assert [ends(run)["w"][0] for run in runs] == ["waiting"] * 4
    for run in runs:
        run.signal("w", "given")
    with travel(app, 3700):
        drain(app)
    assert [run.result(0) for run in runs] == [["given", 1], 1, [1, "given"], [1, "given"]]


def test_a_wait_that_begins_when_its_first_is_decided_never_waits(app: Penstock, same: Any) -> None:
    @app.pipeline(name="late")
    def late() -> Any:
        slow = same.options(key="slow", delay=60)()
        return first(same(1), wait_for("w", after=[slow]), wait_for("v", timeout=10, after=[slow]))

    run = late.trigger()
    drain(app)
    assert "w" not in ends(run)
    with travel(app, 61):
        drain(app)
    assert (run.result(0), ends(run)["w"], ends(run)["v"]) == (1, LOST, LOST)


def test_elements_lose_one_by_one_and_a_failure_ends_no_wait(app: Penstock, same: Any) -> None:
    @app.task(name="odd", retries=0)
    def odd(value: int) -> int:
        if value % 2 == 0:
            raise ValueError(value)
        return value

    @app.pipeline(name="wide", on_failure="continue")
    def wide() -> Any:
        item = same.map([1, 2, 3])
        return first(odd(item), wait_for("w", after=[item])).collect()

    run = wide.trigger()
    drain(app)
    found = ends(run)
    assert [found[f"w[{index}]"][0] for index in range(3)] == ["skipped", "waiting", "skipped"]
    run.signal("w", 2, path=(1,))
    drain(app)
    skipped = [step.path for step in run.steps() if step.key == "w" and step.reason == "first_decided"]
    assert (run.status, sorted(skipped)) == ("failed", [(0,), (2,)])


def test_whatever_comes_first_one_wins_and_the_run_ends(app: Penstock, same: Any) -> None:
    """A settle that decides the first, one that begins the wait, and a signal, all at the same moment."""

    @app.pipeline(name="racing")
    def racing() -> Any:
        begun = same.options(key="begun")()
        waits = [wait_for("w"), wait_for("late", after=[begun])]
        return same.options(key="after")(first(same.options(key="work")("work"), *waits))

    runs = [racing.trigger() for _ in range(12)]
    workers = [RandomWorker(app, seed) for seed in range(2)]
    together = Barrier(3)
    problems: list[BaseException] = []

    def act(what: Any) -> None:
        together.wait(60)
        try:
            what()
        except BaseException as error:
            problems.append(error)

    def signal() -> None:
        for run in runs:
            try:
                run.signal("w", "signal")
            except ActionRefused as error:
                assert "has ended" in str(error)

    threads = [Thread(target=act, args=(what,)) for what in (signal, *[worker.run for worker in workers])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert problems == []
    drain(app)
    for run in runs:
        assert run.result(0) in ("work", "signal")
        assert all(step.status.terminal for step in run.steps())
        assert ends(run)["late"] == LOST
    assert rows(app, "SELECT node FROM {joins} WHERE still_open <> 0") == []


@pytest.mark.parametrize("held", ["slow", "work"])
def test_a_wait_begins_while_its_first_is_decided(
    app: Penstock, same: Any, database_kind: str, held: str
) -> None:
    """One of the two transactions is not committed when the other comes to its end: whichever, the wait has lost."""
    if database_kind == "sqlite":
        pytest.skip("there is one writer at a time")

    @app.pipeline(name="racing")
    def racing() -> Any:
        slow = same.options(key="slow")()
        return first(same.options(key="work")("work"), wait_for("w", after=[slow]))

    run = racing.trigger()
    worker = RandomWorker(app, 0)
    claims: dict[str | None, Claim] = {}
    while len(claims) < 2:
        found = app.database.in_transaction(worker.settle_and_claim, [], 5)
        worker.source.committed()
        claims |= {claim.node: claim for claim in found}
    written, go_on = Event(), Event()
    problems: list[BaseException] = []

    def end(key: str) -> None:
        done = Attempt(claims[key], Outcome(OutcomeKind.SUCCEEDED, output='"work"'))

        def work(tx: Transaction) -> None:
            settle(tx, [done], worker.identity.id, (), app.follow)
            if key == held:
                written.set()
                assert go_on.wait(60)

        try:
            app.database.in_transaction(work)
            while app.engine.chores.turn():
                pass
        except BaseException as error:
            problems.append(error)

    one = Thread(target=end, args=(held,))
    one.start()
    assert written.wait(60)
    other = Thread(target=end, args=("work" if held == "slow" else "slow",))
    other.start()
    other.join(0.3)  # it waits for the run's row; if it does not, it has time to miss what is not committed
    go_on.set()
    for thread in (one, other):
        thread.join(60)
    assert problems == []
    drain(app)
    assert (run.result(0), ends(run)["w"]) == ("work", LOST)
