"""queue/limits/slots: no slot leaks, whatever ends a claim: at every point of the way, by a kill, an error, a stop,
a cancellation.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import count as count_up
from signal import SIGKILL
from typing import Any

import pytest

from penstock import Concurrency, Penstock, Rate, current
from penstock.job import Job
from penstock.queue.limits import slots, upkeep
from penstock.runtime.pump.job_source import JobSource
from penstock.telemetry import fault_points
from penstock.testing import crash_at, drain, travel
from tests.conformance.concurrent_workers import held_slots, parked, together
from tests.conformance.rows import count, rows
from tests.waiting import eventually, until
from tests.workers import Workers

OTHERS = ("claim.committed", "settle.commit", "hand_over", "execute")


def used(app: Penstock) -> dict[str, int]:
    """What counts against each key."""
    keys = [key for (key,) in rows(app, "SELECT limit_key FROM {limits} ORDER BY limit_key")]
    return {key: how.used for key, how in app.database.read(slots.usage, keys).items()}


def declare(app: Penstock, ran: list[int]) -> Any:
    @app.task(name="work", retries=0, limits=[Concurrency(1, key="account"), Concurrency(1, name="all")])
    def work(account: str, number: int) -> None:
        ran.append(number)
        # What the one job at a time finds when it is let in: itself, and no other.
        assert used(app)["concurrency all"] == 1

    @app.task(name="slow", retries=0, limits=[Concurrency(1, key="account"), Rate(1, per=60)])
    def slow(account: str, number: int) -> None:
        ran.append(number)

    return work


def play(app: Penstock, numbers: Iterator[int]) -> list[Job[Any]]:
    """Some that may run one after the other, and some that have to wait, and are let go by the sweep."""
    calls = [("a", next(numbers)), ("b", next(numbers)), ("a", next(numbers))]
    jobs = app.tasks["work"].enqueue_many(calls[:1]) + app.tasks["slow"].enqueue_many(calls[1:])
    drain(app)
    travel(app, 61)
    drain(app)
    return jobs


def test_36_a_worker_may_die_anywhere_and_no_slot_is_lost(app: Penstock) -> None:
    ran: list[int] = []
    declare(app, ran)
    met: Counter[str] = Counter()
    numbers = count_up()
    with fault_points.watching(lambda point: met.update([point])):
        play(app, numbers)
    wanted = [(point, met[point]) for point in met if point.startswith("limits")]
    wanted += [(point, 1) for point in met if point.startswith(OTHERS)]
    assert {"limits.1", "limits.9", "limits.committed", "limits_sweep.5", "limits_sweep.commit"} <= met.keys()
    for point, visit in sorted(wanted):
        travel(app, 3600)
        app.database.in_transaction(upkeep.tidy)  # as at the beginning: no keys, no slots
        with crash_at(point, visit) as crash:
            play(app, numbers)
        assert crash.crashed, point
        for _ in range(3):  # past every back-off of the crashed, and every window of the rate
            travel(app, 3600)
            drain(app)
        assert rows(app, "SELECT DISTINCT status FROM {job_states}") == [("succeeded",)], point
        travel(app, 3600)
        assert set(used(app).values()) <= {0}, point
        assert (parked(app), held_slots(app), count(app, "claims")) == ([], 0, 0), point
    finished = rows(app, "SELECT COUNT(*) FROM {job_states}")[0][0]
    assert len(set(ran)) == finished


def test_a_slot_whose_claim_is_over_does_not_count_however_it_ended(app: Penstock) -> None:
    """Even if it were left behind: the count asks the job's state, and the tidying finds it."""
    ran: list[int] = []
    work = declare(app, ran)
    job = work.enqueue("a", 1)
    drain(app)
    orphan = {"job_id": job.id, "limit_key": "concurrency all", "token": 7, "until": slots.NEVER, "place": 0}
    app.database.in_transaction(lambda tx: tx.insert("slots", [orphan]))
    assert used(app)["concurrency all"] == 0
    work.enqueue("b", 2)
    assert drain(app) == 1
    app.database.in_transaction(upkeep.tidy)
    assert held_slots(app) == 0


@pytest.mark.parametrize("way", ["error", "timeout", "transaction", "cancel", "given up"])
def test_every_end_of_a_claim_makes_room(app: Penstock, way: str) -> None:
    """The next one in line comes at once, not with the next round of the housekeeping."""
    began, ran, over = threading.Event(), list[str](), asyncio.Event()

    @app.task(name="work", retries=0, timeout=0.2 if way == "timeout" else None, limits=[Concurrency(1)])
    async def work(what: str) -> Any:
        ran.append(what)
        if what != "first":
            return what
        began.set()
        if way == "error":
            raise ValueError(way)
        if way == "transaction":
            async with current().transaction():
                current().complete("done")
        else:
            await over.wait()
        return None

    @app.pipeline(name="one")
    def one(what: str) -> Any:
        return work(what)

    async def main() -> None:
        if way == "given up":
            run = await one.trigger_async("first")
        else:
            first = await work.enqueue_async("first")
        await until(began.is_set)
        second = await work.enqueue_async("second")
        if way == "cancel":
            await first.cancel_async()
        if way == "given up":
            await run.cancel_async(grace=0)
        await until(lambda: second.status == "succeeded")
        over.set()

    together([app], main, concurrency=2)
    assert ran == ["first", "second"]
    assert held_slots(app) == 0


def test_what_was_never_begun_gives_its_start_back(app: Penstock) -> None:
    """A worker that stops gives back what waits in it: that was no start, and the rate is not used up by it."""
    began = threading.Event()

    @app.task(name="work", retries=0, max_crashes=0, limits=[Rate(3, per=600), Concurrency(3)])
    async def work() -> None:
        began.set()
        await asyncio.Event().wait()

    async def main() -> None:
        worker = app.worker(concurrency=1)
        await worker.start()
        await work.enqueue_many_async([()] * 3)
        await until(began.is_set)
        await worker.stop(timeout=0.05)

    asyncio.run(main())
    (started,) = rows(app, "SELECT COUNT(DISTINCT job_id) FROM {executions}")[0]
    assert used(app) == {"rate/600s of work": started, "concurrency of work": 0}
    assert held_slots(app) == 0


MODULE = """
import os, time
from penstock import Concurrency, Penstock

app = Penstock()

@app.task(name="work", max_crashes=None, limits=[Concurrency(2, key="account")])
def work(account: str, seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()
"""
LIVELY = {"PENSTOCK_HEARTBEAT_INTERVAL": "0.2", "PENSTOCK_REAP_AFTER": "2"}


@pytest.mark.process
def test_36_a_killed_process_leaves_its_slots_to_the_next(app: Penstock, worker_process: Workers) -> None:
    @app.task(name="work", max_crashes=None, limits=[Concurrency(2, key="account")])
    def work(account: str, seconds: float) -> None: ...

    jobs = work.enqueue_many([("a", 300.0), ("a", 300.0), ("a", 0.0), ("a", 0.0)])
    first = worker_process("--processes", "0", module=MODULE, env=LIVELY)
    eventually(lambda: [job.status for job in jobs] == ["running"] * 2 + ["available"] * 2)
    eventually(lambda: count(app, "parked") == 2)
    first.send_all(SIGKILL)
    for job in jobs[:2]:
        job.cancel()
    worker_process("--processes", "0", module=MODULE, env=LIVELY)
    eventually(lambda: [job.status for job in jobs] == ["cancelled"] * 2 + ["succeeded"] * 2, timeout=60)
    assert held_slots(app) == 0


def test_a_poisoned_job_in_the_line_does_not_stop_it(app: Penstock) -> None:
    """Gone from under the line: pruned, or its state lost. The job behind it comes next."""

    @app.task(name="work", limits=[Rate(1, per=60)])
    def work(number: int) -> int:
        return number

    jobs = work.enqueue_many([(number,) for number in range(4)])
    drain(app)
    for table, column in (("job_states", "job_id"), ("jobs", "id")):
        statement = f"DELETE FROM {{{table}}} WHERE {column} = :id"
        app.database.in_transaction(lambda tx, s=statement: tx.run(s, id=jobs[1].id))  # type: ignore[misc]
    with travel(app, 61):
        assert drain(app) == 1
    assert jobs[2].result(timeout=0) == 2
    assert [job for _, job in parked(app)] == [jobs[3].id]


@pytest.fixture
def claims_stand_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As an idle worker on PostgreSQL does it: the claim is committed, and then it is decided who may run."""
    always = property(lambda _: True, lambda _self, _value: None)
    monkeypatch.setattr(JobSource, "one_statement", always, raising=False)


@pytest.mark.usefixtures("claims_stand_alone")
def test_killed_between_the_claim_and_the_admission_a_job_holds_no_slot(app: Penstock) -> None:
    ran: list[int] = []
    work = declare(app, ran)
    for point in ("claim.committed", "limits.1", "limits.commit", "limits.committed"):
        job = work.enqueue("a", 1)
        with crash_at(point) as crash:
            drain(app)
        assert crash.crashed, point
        assert set(used(app).values()) <= ({1} if point == "limits.committed" else {0}), point
        drain(app)
        assert job.status == "succeeded", point
        assert set(used(app).values()) == {0}, point


@pytest.mark.usefixtures("claims_stand_alone")
def test_cancelled_between_the_claim_and_the_admission_a_job_need_not_wait_first(app: Penstock) -> None:
    ran: list[int] = []
    work = declare(app, ran)
    job = work.enqueue("a", 1)

    def cancel(point: str) -> None:
        if point == "claim.committed" and job.status == "running":
            job.cancel()

    with fault_points.watching(cancel):
        drain(app)
    assert (job.status, ran) == ("cancelled", [])
    assert (held_slots(app), parked(app), count(app, "claims")) == (0, [], 0)
