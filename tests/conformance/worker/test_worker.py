"""runtime/worker: the embedded worker: executors side by side, cancellation, lost leases, a graceful stop."""

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock import Penstock, Retry
from penstock.queue import reclaim
from penstock.runtime.worker import Worker
from penstock.telemetry.events import (
    ClaimLost,
    HandlerOverdue,
    ProcessDeclaredDead,
    ProcessStarted,
    ProcessStopped,
)
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import count, counts
from tests.waiting import until


@pytest.fixture
def app(make_app: Callable[..., Penstock]) -> Penstock:
    return make_app(heartbeat_interval=0.05)


def test_async_and_thread_handlers_run_side_by_side(app: Penstock) -> None:
    meeting = threading.Barrier(2)

    @app.task
    async def on_loop() -> str:
        await asyncio.to_thread(meeting.wait, 60)
        return threading.current_thread().name

    @app.task
    def in_thread() -> str:
        meeting.wait(60)
        return threading.current_thread().name

    async def main(_: Worker) -> list[str]:
        first, second = await on_loop.enqueue_async(), await in_thread.enqueue_async()
        return [await first.result_async(timeout=30), await second.result_async(timeout=30)]

    loop_thread, handler_thread = beside_a_worker(app, main)
    assert loop_thread == threading.main_thread().name
    assert handler_thread != loop_thread
    assert counts(app)["processes"] == 0


def test_an_application_hears_when_its_worker_begins_and_ends(app: Penstock) -> None:
    heard: list[ProcessStarted | ProcessStopped] = []
    app.events.on(ProcessStarted, heard.append)
    app.events.on(ProcessStopped, heard.append)

    async def main(worker: Worker) -> str:
        assert [type(event) for event in heard] == [ProcessStarted]
        return worker.identity.id

    process = beside_a_worker(app, main)
    assert [(type(event), event.process) for event in heard] == [
        (ProcessStarted, process),
        (ProcessStopped, process),
    ]


def test_many_handlers_overlap_up_to_the_limit(app: Penstock) -> None:
    running = most = 0
    full = asyncio.Event()

    @app.task
    async def note() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 8:
            full.set()
        await full.wait()
        running -= 1

    async def main(_: Worker) -> None:
        for job in await note.enqueue_many_async([()] * 40):
            await job.result_async(timeout=30)

    beside_a_worker(app, main, concurrency=8)
    assert most == 8


def test_an_async_handler_is_really_ended_by_its_timeout(app: Penstock) -> None:
    ended: list[str] = []

    @app.task(timeout=0.05, retries=0)
    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def main(_: Worker) -> str:
        job = await hang.enqueue_async()
        await until(lambda: job.status == "failed")
        return str(job.attempts()[0].outcome)

    assert beside_a_worker(app, main) == "timed_out"
    assert ended == ["cancelled"]


@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_an_async_handler_that_resists_its_timeout_has_timed_out_all_the_same(
    app: Penstock, ending: str
) -> None:
    @app.task(timeout=0.05, retries=0)
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if ending == "raises":
                raise ConnectionError from None
        return "too late"

    async def main(_: Worker) -> str:
        job = await stubborn.enqueue_async()
        await until(lambda: job.status in ("failed", "succeeded"))
        return str(job.attempts()[0].outcome)

    assert beside_a_worker(app, main) == "timed_out"


def test_a_thread_that_overruns_is_settled_and_reported_honestly(app: Penstock) -> None:
    let_go = threading.Event()
    overdue: list[HandlerOverdue] = []
    told: list[bool] = []

    @app.task(timeout=0.05, retries=0)
    def hang() -> None:
        let_go.wait(100)
        told.append(penstock.current().cancel_requested)

    app.events.on(HandlerOverdue, overdue.append)

    async def main(worker: Worker) -> None:
        job = await hang.enqueue_async()
        await until(lambda: job.status == "failed")
        assert not told, "the thread still runs, and no event says otherwise"
        assert worker.dispatcher.overdue == 1
        let_go.set()
        await until(lambda: worker.dispatcher.overdue == 0)
        assert [attempt.outcome for attempt in job.attempts()] == ["timed_out"]

    beside_a_worker(app, main)
    assert told == [True]
    assert [event.task for event in overdue] == [hang.name]


def test_a_running_async_job_is_cancelled(app: Penstock) -> None:
    begun, ended = threading.Event(), []

    @app.task
    async def hang() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(penstock.current().cancel_requested)

    async def main(_: Worker) -> None:
        job = await hang.enqueue_async()
        await until(begun.is_set)
        assert await job.cancel_async()
        await until(lambda: job.status == "cancelled")
        assert [attempt.outcome for attempt in job.attempts()] == ["cancelled"]

    beside_a_worker(app, main)
    assert ended == [True]
    assert count(app, "cancellations") == 0


def test_a_running_thread_is_told_that_it_is_cancelled(app: Penstock) -> None:
    begun, told = threading.Event(), threading.Event()

    @app.task
    def patient() -> None:
        job = penstock.current()
        begun.set()
        for _ in range(2000):
            if job.cancel_requested:
                told.set()
                return
            threading.Event().wait(0.01)

    async def main(_: Worker) -> None:
        job = await patient.enqueue_async()
        await until(begun.is_set)
        await job.cancel_async()
        await until(told.is_set)
        await until(lambda: job.status == "cancelled")

    beside_a_worker(app, main)


def test_a_process_taken_for_dead_finds_out_and_goes_on(app: Penstock) -> None:
    """Its handlers are cancelled and told, what they return is dropped, and it works on under a new name."""
    begun, seen = threading.Event(), []
    dead: list[ProcessDeclaredDead] = []
    app.events.on(ProcessDeclaredDead, dead.append)

    @app.task(retries=0)
    async def hang() -> str:
        job = penstock.current()
        if job.recovered:
            return f"attempt {job.attempt}"
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(job.lease_lost)
        return "stale"

    async def main(worker: Worker) -> None:
        before = worker.identity.id
        job = await hang.enqueue_async()
        await until(begun.is_set)
        app.database.in_transaction(reclaim.remove_process, before)
        app.database.in_transaction(reclaim.reclaim)
        assert await job.result_async(timeout=60) == "attempt 2"
        assert worker.identity.id != before

    beside_a_worker(app, main)
    assert seen == [True]
    assert len(dead) == 1


def test_a_stale_thread_changes_nothing(app: Penstock) -> None:
    """It cannot be stopped; but its result is dropped, and its successor's stands."""
    begun, let_go = threading.Event(), threading.Event()
    lost: list[ClaimLost] = []
    app.events.on(ClaimLost, lost.append)

    @app.task(retries=0)
    def hang() -> str:
        job = penstock.current()
        if job.recovered:
            return "successor"
        begun.set()
        let_go.wait(100)
        return "stale"

    async def main(worker: Worker) -> None:
        job = await hang.enqueue_async()
        await until(begun.is_set)
        app.database.in_transaction(reclaim.remove_process, worker.identity.id)
        app.database.in_transaction(reclaim.reclaim)
        assert await job.result_async(timeout=60) == "successor"
        let_go.set()
        await until(lambda: lost)
        assert job.result(timeout=0) == "successor"
        assert [attempt.outcome for attempt in job.attempts()] == ["crashed", "succeeded"]

    beside_a_worker(app, main)


def test_progress_is_seen_while_the_handler_runs(app: Penstock) -> None:
    let_go = threading.Event()

    @app.task
    def work() -> None:
        penstock.current().progress(0.4, "2 of 5 files")
        let_go.wait(100)

    async def main(_: Worker) -> None:
        job = await work.enqueue_async()
        await until(lambda: job.progress() == (0.4, "2 of 5 files"))
        let_go.set()
        await job.result_async(timeout=60)

    beside_a_worker(app, main)


def test_new_work_in_the_same_process_is_found_without_polling(make_app: Callable[..., Penstock]) -> None:
    app = make_app(poll_interval=3600, sweep_interval=3600)

    @app.task
    async def note() -> int:
        return os.getpid()

    async def main(worker: Worker) -> None:
        await until(lambda: worker.pump._empty_turns > 0)
        for _ in range(3):
            job = await note.enqueue_async()
            assert await job.result_async(timeout=60) == os.getpid()

    beside_a_worker(app, main)


def test_retries_run_when_they_are_due(app: Penstock) -> None:
    @app.task(retries=Retry(max=2, delay=0.05, factor=1, jitter=0))
    async def flaky() -> int:
        attempt = penstock.current().attempt
        if attempt < 3:
            raise ConnectionError
        return attempt

    async def main(_: Worker) -> Any:
        return await (await flaky.enqueue_async()).result_async(timeout=60)

    assert beside_a_worker(app, main) == 3
