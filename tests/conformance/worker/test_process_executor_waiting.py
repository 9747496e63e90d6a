"""runtime/executors/process_executor: `executor="process"`: there are few processes, and most of what a worker holds
waits for one of them.
"""

import asyncio
import os
import threading
from collections import Counter
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.executors.process_executor import ProcessExecutor
from penstock.runtime.executors.work import Interruption
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import count, state
from tests.refused import no_threads
from tests.waiting import until

pytestmark = pytest.mark.one_database


def test_what_waits_for_a_process_is_given_back_by_a_stop_and_does_not_begin(
    shop: Any, tmp_path: Path
) -> None:
    async def main() -> list[str]:
        worker = shop.app.worker()
        await worker.start()
        jobs = await shop.sit.enqueue_many_async([(str(tmp_path),)] * 6)
        await until(lambda: len(os.listdir(tmp_path)) == 2)
        await until(lambda: worker.dispatcher.busy == 6)
        await worker.stop(timeout=0.01)
        return [job.id for job in jobs]

    ids = asyncio.run(main())
    assert len(os.listdir(tmp_path)) == 2
    left = [state(shop.app, id) for id in ids]
    assert {(row["status"], row["crash_count"], row["retry_count"]) for row in left} == {("available", 0, 0)}
    begun = {id for id in ids if shop.app.job(id).attempts()}
    assert begun == set(os.listdir(tmp_path)), "what has not begun was no attempt"
    assert count(shop.app, "claims") == 0


def test_what_waits_for_a_process_is_given_back_while_a_stop_lets_others_finish(
    shop: Any, tmp_path: Path
) -> None:
    async def main() -> None:
        worker = shop.app.worker()
        await worker.start()
        jobs = await shop.sit.enqueue_many_async([(str(tmp_path),)] * 6)
        await until(lambda: len(os.listdir(tmp_path)) == 2)
        await until(lambda: worker.dispatcher.busy == 6)
        stopping = asyncio.create_task(worker.stop(timeout=600))
        await until(lambda: Counter(job.status for job in jobs) == {"running": 2, "available": 4})
        worker.hurry()
        await stopping
        assert len(os.listdir(tmp_path)) == 2
        assert {len(job.attempts()) for job in jobs if job.id not in os.listdir(tmp_path)} == {0}

    asyncio.run(main())


@pytest.mark.parametrize("why", [Interruption.LOST, Interruption.CANCELLED, Interruption.RELEASED])
def test_what_is_stopped_together_does_not_begin_in_the_process_that_this_frees(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: Interruption
) -> None:
    asked, taken = threading.Event(), []
    take, interrupt = ProcessExecutor.take, ProcessExecutor.interrupt

    def take_aloud(executor: ProcessExecutor, leader: Any) -> Any:
        work = take(executor, leader)
        taken.append(work)
        asked.set()
        return work

    def interrupt_slowly(executor: ProcessExecutor, work: Any, why: Interruption) -> None:
        ends = work.key in executor._running
        asked.clear()
        interrupt(executor, work, why)
        if ends:
            assert asked.wait(60), "its leader looks for something else before the next is stopped"

    monkeypatch.setattr(ProcessExecutor, "take", take_aloud)
    monkeypatch.setattr(ProcessExecutor, "interrupt", interrupt_slowly)

    async def main(worker: Worker) -> None:
        changed = worker.executors.processes._changed
        wait = changed.wait

        def wait_aloud() -> bool:
            asked.set()
            return wait()

        monkeypatch.setattr(changed, "wait", wait_aloud)
        await shop.sit.enqueue_many_async([(str(tmp_path),)] * 6)
        await until(lambda: len(os.listdir(tmp_path)) == 2)
        await until(lambda: worker.dispatcher.busy == 6)
        worker.pump.claiming = False
        worker.dispatcher.interrupt(set(worker.dispatcher.active), why)
        assert len(taken) == 2
        await until(lambda: worker.dispatcher.busy == 0)

    beside_a_worker(shop.app, main)
    assert len(os.listdir(tmp_path)) == 2


def test_what_waits_for_a_process_does_not_begin_once_it_is_cancelled_or_lost(
    shop: Any, tmp_path: Path
) -> None:
    async def main(worker: Worker) -> None:
        seats = await shop.sit.enqueue_many_async([(str(tmp_path),)] * 2)
        await until(lambda: len(os.listdir(tmp_path)) == 2)
        cancelled, lost = await shop.sit.enqueue_many_async([(str(tmp_path),)] * 2)
        await until(lambda: worker.dispatcher.busy == 4)
        await cancelled.cancel_async()
        await until(lambda: cancelled.status == "cancelled")  # while both processes are taken
        assert cancelled.attempts() == []
        worker.dispatcher.interrupt(
            {key for key, work in worker.dispatcher.active.items() if work.id == lost.id}, Interruption.LOST
        )
        await until(lambda: worker.dispatcher.busy == 2)
        for seat in seats:
            await seat.cancel_async()
        rendered = await shop.render.enqueue_async(3)
        assert (await rendered.result_async(timeout=60))["pages"] == 3
        await until(lambda: (worker.dispatcher.busy, worker.dispatcher.overdue) == (0, 0))
        assert sorted(os.listdir(tmp_path)) == sorted(seat.id for seat in seats)

    beside_a_worker(shop.app, main)


def test_a_handler_does_not_begin_that_is_cancelled_while_its_process_starts(
    shop: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, starting, interrupted = SpawnProcess.start, threading.Event(), threading.Event()

    def start_slowly(child: Any) -> None:
        starting.set()
        assert interrupted.wait(60)
        start(child)

    monkeypatch.setattr(SpawnProcess, "start", start_slowly)

    async def main(worker: Worker) -> None:
        job = await shop.sit.enqueue_async(str(tmp_path))
        await until(starting.is_set)
        (work,) = worker.dispatcher.active.values()
        await job.cancel_async()
        await until(lambda: work.interrupted)
        interrupted.set()
        await until(lambda: job.status == "cancelled")
        rendered = await shop.render.enqueue_async(3)
        assert (await rendered.result_async(timeout=60))["pages"] == 3

    beside_a_worker(shop.app, main)
    assert os.listdir(tmp_path) == []


def test_works_that_come_together_have_a_process_each(shop: Any, tmp_path: Path) -> None:
    async def main(_: Worker) -> None:
        jobs = await shop.sit.enqueue_many_async([(str(tmp_path),)] * 2)
        await until(lambda: len(os.listdir(tmp_path)) == 2)
        for job in jobs:
            await job.cancel_async()

    beside_a_worker(shop.app, main)


def test_without_a_thread_to_lead_it_no_process_is_counted(shop: Any) -> None:
    """There may be two: if those that never were counted, there would be none left."""

    async def main(_: Worker) -> list[str]:
        with no_threads("penstock-process-leader", times=2) as refused:
            jobs = await shop.render.enqueue_many_async([(1,), (2,)])
            for pages, job in enumerate(jobs, 1):
                assert (await job.result_async(timeout=60))["pages"] == pages
        assert len(refused) == 2
        return [job.id for job in jobs]

    for id in beside_a_worker(shop.app, main):
        assert [attempt.outcome for attempt in shop.app.job(id).attempts()] == ["released", "succeeded"]
        assert state(shop.app, id)["crash_count"] == 0
