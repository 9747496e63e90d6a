"""runtime/shutdown: a graceful stop of the embedded worker: running work may finish, the rest goes back, and no
budget is spent.
"""

import asyncio
import threading
from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.job import Job
from penstock.queue import reclaim
from penstock.runtime import shutdown
from penstock.runtime.liveness.process_row import Departure
from penstock.runtime.worker import Worker
from penstock.telemetry.events import RowSetAside, TroubleBegan
from penstock.testing import drain
from tests.conformance.embedded import beside_a_worker
from tests.conformance.faults import failing_at, out_of_disk
from tests.conformance.operate.helpers import declare_tasks, enqueue, register, take
from tests.conformance.refusing import refusing_the_end_of
from tests.conformance.rows import count, counts, state
from tests.refused import no_threads
from tests.waiting import until


def test_a_graceful_stop_gives_back_what_it_must_and_spends_nothing(app: Penstock) -> None:
    begun = threading.Event()

    @app.task(retries=0, max_crashes=0)
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async def main() -> list[str]:
        worker = app.worker(concurrency=1)
        await worker.start()
        jobs = await hang.enqueue_many_async([()] * 3)
        await until(begun.is_set)
        await worker.stop(timeout=0.05)
        return [job.id for job in jobs]

    ids = asyncio.run(main())
    for job_id in ids:
        left = state(app, job_id)
        assert (left["status"], left["retry_count"], left["crash_count"]) == ("available", 0, 0)
    assert counts(app) | {"executions": 0} == {
        "jobs": 3,
        "job_states": 3,
        "availabilities": 3,
        "scheduled": 0,
        "claims": 0,
        "executions": 0,
        "job_keys": 0,
        "processes": 0,
    }
    outcomes = {str(attempt.outcome) for job_id in ids for attempt in app.job(job_id).attempts()}
    assert outcomes <= {"released"}


def test_a_graceful_stop_lets_running_work_finish(app: Penstock) -> None:
    begun, let_go = threading.Event(), threading.Event()

    @app.task
    async def work() -> str:
        begun.set()
        await asyncio.to_thread(let_go.wait, 20)
        return "finished"

    async def main() -> str:
        worker = app.worker()
        await worker.start()
        job = await work.enqueue_async()
        await until(begun.is_set)
        stopping = asyncio.create_task(worker.stop())
        await until(worker.stopping.is_set)
        let_go.set()
        await stopping
        return job.result(timeout=0)

    assert asyncio.run(main()) == "finished"


def test_who_stops_a_worker_that_is_stopping_waits_until_it_has_stopped(app: Penstock) -> None:
    begun, let_go = threading.Event(), threading.Event()

    @app.task
    async def work() -> None:
        begun.set()
        await asyncio.to_thread(let_go.wait, 20)

    async def main() -> int:
        worker = app.worker()
        await worker.start()
        await work.enqueue_async()
        await until(begun.is_set)
        stopping = asyncio.create_task(worker.stop())
        await until(worker.stopping.is_set)
        let_go.set()
        await worker.stop()
        left = counts(app)["processes"]
        await stopping
        return left

    assert asyncio.run(main()) == 0


def test_a_handler_that_breaks_while_it_is_stopped_spends_nothing(app: Penstock) -> None:
    begun = threading.Event()

    @app.task(retries=0, max_crashes=0)
    async def clumsy() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ConnectionError("the tidying up failed")

    async def main() -> str:
        worker = app.worker()
        await worker.start()
        job = await clumsy.enqueue_async()
        await until(begun.is_set)
        await worker.stop(timeout=0.05)
        return job.id

    left = state(app, asyncio.run(main()))
    assert (left["status"], left["retry_count"], left["crash_count"]) == ("available", 0, 0)


def test_a_worker_whose_database_cannot_be_written_leaves_as_soon_as_it_can(app: Penstock) -> None:
    async def main() -> None:
        worker = app.worker()
        await worker.start()
        with failing_at("leave.1", out_of_disk(app), times=2) as struck:
            await worker.stop()
        assert len(struck) == 2

    asyncio.run(main())
    assert counts(app)["processes"] == 0


def test_a_worker_that_must_stop_at_once_does_not_wait_for_the_database(app: Penstock) -> None:
    said: list[TroubleBegan] = []
    app.events.on(TroubleBegan, said.append)

    async def main() -> None:
        worker = app.worker()
        await worker.start()
        worker.hurry()
        with failing_at("leave.1", out_of_disk(app), times=100) as struck:
            await worker.stop()
        assert len(struck) == 1

    asyncio.run(main())
    assert "Others will find this process dead" in said[0].error


def test_a_worker_for_whose_leave_there_is_no_thread_takes_it_all_the_same(app: Penstock) -> None:
    @app.task
    async def hang() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        worker = app.worker()
        await worker.start()
        job = await hang.enqueue_async()
        await until(lambda: worker.running_tasks)
        with no_threads("penstock-leave", times=1) as refused:
            await worker.stop(timeout=0.05)
        assert refused
        assert job.status == "available"

    asyncio.run(main())
    assert (count(app, "processes"), count(app, "claims")) == (0, 0)


def test_a_job_that_cannot_be_given_back_keeps_no_other_from_it(app: Penstock) -> None:
    said: list[RowSetAside] = []
    app.events.on(RowSetAside, said.append)
    begun: list[str] = []
    go_on = False

    @app.task(retries=0, max_crashes=1)
    async def hang() -> str:
        begun.append("hang")
        while not go_on:  # noqa: ASYNC110 - the next worker has another loop
            await asyncio.sleep(0.01)
        return "done"

    async def first() -> list[Job[str]]:
        worker = app.worker(concurrency=5)
        await worker.start()
        jobs = await hang.enqueue_many_async([()] * 5)
        await until(lambda: len(begun) == 5)
        with refusing_the_end_of(app, jobs[2].id):
            worker.hurry()
            await worker.stop(timeout=0.05)
            left = {job.id: state(app, job.id) for job in jobs}
            assert left.pop(jobs[2].id)["status"] == "running"
            assert {(row["status"], row["crash_count"]) for row in left.values()} == {("available", 0)}
            assert count(app, "processes") == 0
        return jobs

    jobs = asyncio.run(first())
    assert any("this claim does not end" in event.error for event in said)
    go_on = True

    async def second(_: Worker) -> None:
        assert [await job.result_async(timeout=30) for job in jobs] == ["done"] * 5

    beside_a_worker(app, second)
    assert [len(job.attempts()) for job in jobs] == [2] * 5
    assert count(app, "claims") == 0


def test_a_stop_does_not_wait_long_for_an_outcome_that_is_refused(
    make_app: Callable[..., Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(shutdown_timeout=3600)
    monkeypatch.setattr(shutdown, "SETTLE_FOR", 0.2)
    go_on = asyncio.Event()

    @app.task
    async def work() -> str:
        await go_on.wait()
        return "done"

    async def main() -> None:
        worker = app.worker()
        await worker.start()
        job = await work.enqueue_async()
        await until(lambda: worker.busy == 1)
        with refusing_the_end_of(app, job.id):
            go_on.set()
            await until(lambda: worker.only_refused and worker.pump.refused == 1)
            await asyncio.wait_for(worker.stop(), 30)
            assert job.status == "running"

    asyncio.run(main())
    assert count(app, "processes") == 0


class Died(BaseException):
    """The process is gone, and everything that it would have done next."""


@pytest.mark.parametrize("point", ["release.2", "release.committed", "leave.1", "leave.2"])
def test_a_process_may_die_while_it_gives_back_job_by_job(app: Penstock, point: str) -> None:
    """Its row stays until its last transaction, so the rest is found as with any dead process."""
    declare_tasks(app)
    jobs = [enqueue(app, "quick", number) for number in range(4)]
    take(app, process := register(app))
    with refusing_the_end_of(app, jobs[1].id):
        with failing_at(point, Died(), times=1), pytest.raises(Died):  # type: ignore[arg-type]
            Departure(app.database, app.events, [process]).go()
        assert count(app, "processes") == 1
        assert jobs[1].status == "running"
    app.database.in_transaction(reclaim.remove_process, process)
    app.database.in_transaction(reclaim.reclaim)
    drain(app)
    assert [job.result(timeout=0) for job in jobs] == [0, 1, 2, 3]
    assert count(app, "claims") == 0
