"""updates: Streams of updates: every job and run is followed to its end, by async and by sync callers."""

import asyncio
import threading
from typing import Any

import pytest

from penstock import Penstock, current
from penstock.errors import PenstockError, ResultTimeout
from penstock.runtime.worker import Worker
from penstock.testing import drain
from penstock.updates import JobUpdate, RunUpdate
from penstock.values.ids import new_id
from penstock.values.status import JobStatus
from tests.conformance.embedded import beside_a_worker


def test_a_job_is_followed_from_its_progress_to_its_end(app: Penstock) -> None:
    told = asyncio.Event()

    @app.task(name="load")
    async def load() -> str:
        current().progress(0.5, "half")
        await asyncio.wait_for(told.wait(), 100)
        return "done"

    async def main(_: Worker) -> list[JobUpdate]:
        job = load.enqueue()
        seen = []
        async for update in job.stream(timeout=100):
            seen.append(update)
            if update.message == "half":
                told.set()
        return seen

    seen = beside_a_worker(app, main)
    assert seen[-1] == JobUpdate(JobStatus.SUCCEEDED, 1, 0.5, "half")
    assert ("running", 0.5) in [(update.status, update.progress) for update in seen]
    assert len(seen) == len(set(seen))
    assert seen[-1].as_dict() == {
        "status": "succeeded",
        "attempt": 1,
        "progress": 0.5,
        "message": "half",
        "reason": None,
    }


def test_a_sync_caller_follows_too_and_sees_a_cancellation(app: Penstock) -> None:
    @app.task(name="note")
    def note() -> None: ...

    job = note.options(delay=60).enqueue()
    stream = iter(job.stream(timeout=60))
    assert next(stream).status == "scheduled"
    canceller = threading.Thread(target=job.cancel)
    canceller.start()
    assert [(update.status, update.reason) for update in stream] == [("cancelled", "cancelled")]
    canceller.join()
    assert [update.status for update in job.stream()] == ["cancelled"]


def test_a_stream_ends_with_its_time_and_is_none_of_what_is_not_there(app: Penstock) -> None:
    @app.task(name="note")
    def note() -> None: ...

    stream = iter(note.enqueue().stream(timeout=0.05))
    assert next(stream).status == "available"
    with pytest.raises(ResultTimeout):
        next(stream)
    with pytest.raises(PenstockError, match="there is no job"):
        list(app.job(new_id()).stream(timeout=5))


def test_a_run_is_followed_by_its_steps(app: Penstock) -> None:
    @app.task(name="numbers")
    def numbers() -> list[int]:
        return [1, 2, 3]

    @app.task(name="double")
    def double(number: int) -> int:
        return number * 2

    @app.pipeline(name="doubled")
    def doubled() -> Any:
        return double.map(numbers()).collect()

    async def main(_: Worker) -> list[RunUpdate]:
        run = await doubled.trigger_async()
        return [update async for update in run.stream(timeout=100)]

    seen = beside_a_worker(app, main)
    last = seen[-1]
    assert (last.status, last.done, last.total) == ("succeeded", 4, 4)
    assert last.steps["double"] == {"succeeded": 3}
    assert last.as_dict()["steps"]["numbers"] == {"succeeded": 1}
    assert all(seen[index] != seen[index + 1] for index in range(len(seen) - 1))
    assert drain(app) == 0
