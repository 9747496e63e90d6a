"""runtime/executors/process_executor: `executor="process"`: handlers in processes of their own, which can be killed
and may die.

Each of them starts an interpreter and imports everything. That they work on every database is shown once for each; how
they end is shown on one.
"""

import os
from itertools import pairwise
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Penstock
from penstock.errors import JobFailed
from penstock.runtime.worker import Worker
from penstock.testing import drain
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import counts, state
from tests.waiting import until


def test_all_executors_side_by_side(shop: Any) -> None:
    async def main(_: Worker) -> None:
        rendered = await shop.render.enqueue_async(3)
        knowing = await shop.know.enqueue_async()
        paid = await shop.pay.enqueue_async()
        loop, thread = await shop.on_loop.enqueue_async(), await shop.in_thread.enqueue_async()
        assert await loop.result_async(timeout=60) == os.getpid()
        assert await thread.result_async(timeout=60) == os.getpid()
        result = await rendered.result_async(timeout=60)
        assert result["pages"] == 3
        assert result["pid"] != os.getpid()
        assert await knowing.result_async(timeout=60) == {"id": knowing.id, "attempt": 1, "once": True}
        assert await paid.result_async(timeout=60) == "receipt"
        await until(lambda: knowing.progress() == (0.5, "half"))
        failed = await shop.fail.enqueue_async()
        await until(lambda: failed.status == "failed")
        assert "LookupError: no such report" in failed.attempts()[0].error
        assert "in fail" in failed.attempts()[0].traceback

    beside_a_worker(shop.app, main)
    assert counts(shop.app)["claims"] == 0


@pytest.mark.one_database
def test_a_handler_process_that_hangs_is_killed_by_its_timeout(shop: Any) -> None:
    async def main(_: Worker) -> int:
        job = await shop.hang.enqueue_async()
        await until(lambda: job.status == "failed")
        assert [attempt.outcome for attempt in job.attempts()] == ["timed_out"]
        again = await shop.render.enqueue_async(1)
        assert (await again.result_async(timeout=60))["pages"] == 1
        await until(job.progress)
        return int(job.progress()[1])

    assert shop.gone(beside_a_worker(shop.app, main))


@pytest.mark.one_database
def test_a_running_handler_process_is_killed_by_a_cancel(shop: Any) -> None:
    async def main(_: Worker) -> int:
        job = await shop.wait.enqueue_async()
        await until(job.progress)
        pid = int(job.progress()[1])
        await job.cancel_async()
        await until(lambda: job.status == "cancelled")
        return pid

    assert shop.gone(beside_a_worker(shop.app, main))


@pytest.mark.one_database
def test_a_handler_process_that_dies_is_a_crash_and_harms_no_other_job(shop: Any) -> None:
    async def main(_: Worker) -> None:
        job = await shop.die.enqueue_async()
        fine = await shop.render.enqueue_async(2)
        assert (await fine.result_async(timeout=60))["pages"] == 2
        await until(lambda: job.status == "failed")
        assert [attempt.outcome for attempt in job.attempts()] == ["crashed", "crashed"]
        assert state(shop.app, job.id)["retry_count"] == 0
        assert "exit code -9" in job.attempts()[0].error

    beside_a_worker(shop.app, main)


def once_by_pid() -> bool:
    job = penstock.current()
    return bool(job.once("pid", os.getpid) == os.getpid())


@pytest.mark.one_database
def test_a_process_that_cannot_be_started_wedges_no_job(shop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    start, failures = SpawnProcess.start, [OSError(11, "no room"), ImportError("x.so: Too many open files")]

    def refuse_twice(child: Any) -> None:
        if failures:
            raise failures.pop(0)
        start(child)

    monkeypatch.setattr(SpawnProcess, "start", refuse_twice)

    async def main(_: Worker) -> Any:
        job = await shop.render.enqueue_async(3)
        assert (await job.result_async(timeout=60))["pages"] == 3
        return job

    job = beside_a_worker(shop.app, main)
    first, second, last = job.attempts()
    assert "no process could be started" in str(first.error)
    assert "Too many open files" in str(second.error)
    assert last.error is None
    assert [first.outcome, second.outcome, last.outcome] == ["released", "released", "succeeded"]


@pytest.mark.one_database
def test_as_long_as_no_process_can_be_started_a_job_spends_nothing_and_waits_longer_each_time(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(SpawnProcess, "start", refuse)
    monkeypatch.setattr("penstock.runtime.executors.start_pause.REJECTED_DELAY", 0.2)

    async def main(_: Worker) -> Any:
        job = await shop.die.options(max_crashes=0).enqueue_async()
        await until(lambda: len(job.attempts()) == 4)
        return job

    job = beside_a_worker(shop.app, main)
    times = [attempt.started_at for attempt in job.attempts()]
    pauses = [(after - before).total_seconds() for before, after in pairwise(times)]
    assert [attempt.outcome for attempt in job.attempts()] == ["released"] * 4
    assert pauses[1] > 1.5 * 0.2
    assert pauses[2] > 3.5 * 0.2
    assert state(shop.app, job.id)["crash_count"] == 0


@pytest.mark.one_database
def test_while_no_process_can_be_started_other_executors_go_on(
    shop: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system refuses for so long that the test would not wait for it."""

    def refuse(_: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    start = SpawnProcess.start
    monkeypatch.setattr(SpawnProcess, "start", refuse)
    monkeypatch.setattr("penstock.runtime.executors.start_pause.REJECTED_DELAY", 3600.0)

    @shop.app.task(name="beside", retries=0)
    def beside() -> int:
        return 1

    async def main(worker: Worker) -> None:
        refused = await shop.render.enqueue_async(3)
        await until(lambda: worker.dispatcher.paused_executors == {"process"})
        left = await shop.render.enqueue_async(4)
        for _ in range(5):
            assert await (await beside.enqueue_async()).result_async(timeout=30) == 1
        await until(lambda: refused.status == "scheduled")
        assert (left.status, left.attempts()) == ("available", [])
        monkeypatch.setattr(SpawnProcess, "start", start)
        monkeypatch.setattr("penstock.runtime.executors.start_pause.REJECTED_DELAY", 0.0)
        assert (await left.result_async(timeout=60))["pages"] == 4

    beside_a_worker(shop.app, main)


@pytest.mark.one_database
@pytest.mark.parametrize("how", ["fork and die", "start and die", "fork and hang", "start and hang"])
def test_a_handler_process_that_leaves_others_behind_is_noticed_and_they_go_with_it(
    shop: Any, how: str, tmp_path: Path
) -> None:
    """Those have inherited its end of the pipe: nothing that is told by that is told when it dies."""

    async def main(_: Worker) -> None:
        job = await shop.leave_behind.options(timeout=1 if "hang" in how else None).enqueue_async(
            how, str(tmp_path)
        )
        await until(lambda: job.status == "failed", timeout=30)
        said = "timed_out" if "hang" in how else "crashed"
        assert [attempt.outcome for attempt in job.attempts()] == [said]
        again = await shop.render.enqueue_async(1)
        assert (await again.result_async(timeout=60))["pages"] == 1
        assert shop.gone(int((tmp_path / "helper").read_text())), (
            "it is of a group with the one that was killed"
        )

    beside_a_worker(shop.app, main)


@pytest.mark.one_database
def test_a_function_becomes_a_task_by_a_call(app: Penstock) -> None:
    """There is no task under its name to import: the process makes one, with the worker's own settings."""
    ask = app.task(name="ask", executor="process")(once_by_pid)

    @app.task(executor="process", retries=0)
    def hidden() -> None:
        pass

    async def main(_: Worker) -> None:
        job, lost = await ask.enqueue_async(), await hidden.enqueue_async()
        assert await job.result_async(timeout=60) is True
        with pytest.raises(JobFailed, match="at the top of a module"):
            await lost.result_async(timeout=60)

    beside_a_worker(app, main)


@pytest.mark.one_database
def test_what_is_more_than_the_function_of_its_name_is_found_as_a_task_or_not_at_all(shop: Any) -> None:
    """Never without its decorator: that would be another result, without an error."""
    lost = [
        shop.app.task(name=name, executor="process", retries=0)(function)
        for name, function in (("redoubled", shop.twice(shop.same)), ("readded", shop.Adder(7).add))
    ]

    async def main(_: Worker) -> None:
        jobs = [await task.enqueue_async(1) for task in (shop.doubled, shop.added, shop.as_is)]
        assert [await job.result_async(timeout=60) for job in jobs] == [2, 6, 1]
        for task in lost:
            job = await task.enqueue_async(1)
            with pytest.raises(JobFailed, match="at the top of a module, as a task"):
                await job.result_async(timeout=60)

    beside_a_worker(shop.app, main)


def test_in_drain_they_run_in_the_caller(shop: Any) -> None:
    job = shop.render.enqueue(5)
    assert drain(shop.app) == 1
    assert job.result(timeout=0) == {"pages": 5, "pid": os.getpid()}
