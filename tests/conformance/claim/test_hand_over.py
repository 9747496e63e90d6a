"""runtime/executors/dispatcher: whatever fails between the claim and its handler, the claim gets an outcome."""

import threading
from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import count, state
from tests.refused import no_threads
from tests.waiting import until


@pytest.fixture
def app(make_app: Callable[..., Penstock]) -> Penstock:
    return make_app(heartbeat_interval=0.05)


def test_without_a_thread_for_it_a_job_goes_back_for_a_moment_and_spends_nothing(app: Penstock) -> None:
    @app.task(retries=0, max_crashes=0)
    def note(number: int) -> int:
        return number

    async def main(_: Worker) -> str:
        with no_threads("penstock-handler", times=2) as refused:
            first, second = await note.enqueue_many_async([(1,), (2,)])
            assert await first.result_async(timeout=30) == 1
            assert await second.result_async(timeout=30) == 2
        assert len(refused) == 2
        return first.id

    job_id = beside_a_worker(app, main)
    outcomes = [(attempt.outcome, attempt.error) for attempt in app.job(job_id).attempts()]
    assert outcomes == [("released", "RuntimeError: can't start new thread"), ("succeeded", None)]
    assert (state(app, job_id)["retry_count"], state(app, job_id)["crash_count"]) == (0, 0)
    assert count(app, "claims") == 0


def test_where_there_are_threads_a_job_waits_for_one_of_them(app: Penstock) -> None:
    begun: list[int] = []
    let_go = threading.Event()

    @app.task(retries=0, max_crashes=0)
    def hold(number: int) -> int:
        begun.append(number)
        let_go.wait(30)
        return number

    async def main(worker: Worker) -> list[str]:
        first = await hold.enqueue_async(1)
        await until(lambda: begun == [1])
        with no_threads("penstock-handler", times=2):
            second, third = await hold.enqueue_async(2), await hold.enqueue_async(3)
            await until(lambda: len(worker.dispatcher.active) == 3)
        await second.cancel_async()
        await until(lambda: second.status == "cancelled")
        let_go.set()
        assert await first.result_async(timeout=30) == 1
        assert await third.result_async(timeout=30) == 3
        await until(lambda: (worker.dispatcher.busy, worker.dispatcher.overdue) == (0, 0))
        return [first.id, second.id, third.id]

    ids = beside_a_worker(app, main)
    assert begun == [1, 3]
    assert [len(app.job(id).attempts()) for id in ids] == [1, 0, 1]


def test_a_job_whose_name_is_a_pipelines_now_harms_no_job_beside_it(
    app: Penstock, make_app: Callable[..., Penstock]
) -> None:
    @app.task(name="report")
    def report() -> None: ...

    later = make_app(heartbeat_interval=0.05)

    @later.task(name="note")
    def note() -> str:
        return "noted"

    @later.pipeline(name="report")
    def report_in_steps():  # type: ignore[no-untyped-def]
        return note()

    @app.task(name="note")
    def note_before() -> str:
        raise AssertionError

    lost = report.enqueue()
    beside = note_before.enqueue()

    async def main(_: Worker) -> None:
        assert await beside.result_async(timeout=30) == "noted"
        await until(lost.attempts)

    beside_a_worker(later, main)
    (attempt,) = lost.attempts()
    assert attempt.outcome == "errored"
    assert "no task is named 'report'" in str(attempt.error)
    assert (lost.status, state(app, lost.id)["retry_count"]) == ("scheduled", 1)
    assert count(app, "claims") == 0


def test_an_unknown_executor_is_the_error_of_its_job_only(app: Penstock) -> None:
    @app.task(retries=0)
    def note() -> str:
        return "noted"

    jobs = note.enqueue_many([()] * 3)
    change = "UPDATE {jobs} SET options = :options WHERE id = :id"
    app.database.in_transaction(lambda tx: tx.run(change, options='{"executor":"rocket"}', id=jobs[1].id))

    async def main(_: Worker) -> None:
        assert await jobs[0].result_async(timeout=30) == "noted"
        assert await jobs[2].result_async(timeout=30) == "noted"
        await until(lambda: jobs[1].status == "failed")

    beside_a_worker(app, main)
    assert "there is no executor 'rocket'" in str(jobs[1].attempts()[0].error)
    assert count(app, "claims") == 0
