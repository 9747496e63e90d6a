"""runtime/executors/process_executor: a handler's process that dies, or finds no memory, while it imports the
application: no budget is spent.

The actors: the worker, its leader thread, the fresh process. The process may end at any moment before it says that a
handler has begun; then no line of the handler has run, so the job is given back. Its task is left out of the claims
for a pause that grows, tasks of other processes go on, and each pause is told in the log and in the attempt.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import state
from tests.waiting import until

MODULE = "tests.conformance.worker.crashing_import"

pytestmark = pytest.mark.one_database


@pytest.fixture
def how(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PENSTOCK_TEST_IMPORT", str(tmp_path / "how"))
    monkeypatch.setattr("penstock.runtime.executors.start_pause.REJECTED_DELAY", 0.2)
    return tmp_path / "how"


@pytest.fixture
def crashing(database_url: str, how: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("PENSTOCK_TEST_SHOP_URL", database_url)
    sys.modules.pop(MODULE, None)
    module = importlib.import_module(MODULE)
    yield module
    module.app.close()
    sys.modules.pop(MODULE, None)


@pytest.mark.parametrize("why", ["exit", "starve", "limit"])
def test_a_process_that_cannot_import_the_application_spends_nothing(
    crashing: Any, how: Path, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "penstock")
    how.write_text(why)

    async def main(worker: Worker) -> Any:
        job = await crashing.work.enqueue_async(5)
        await until(lambda: len(job.attempts()) >= 3)
        assert worker.dispatcher.paused_executors == set(), "tasks of other modules go on"
        await asyncio.to_thread(how.write_text, "go on")
        assert await job.result_async(timeout=60) == 5
        assert not worker.dispatcher.processes.paused_tasks
        return job

    job = beside_a_worker(crashing.app, main)
    *refused, last = job.attempts()
    assert {attempt.outcome for attempt in refused} == {"released"}
    assert all("could not import the application" in str(attempt.error) for attempt in refused)
    assert last.outcome == "succeeded"
    assert state(crashing.app, job.id)["crash_count"] == 0
    pauses = [record.getMessage() for record in caplog.records if "could not import" in record.getMessage()]
    assert len(pauses) == len(refused)
    assert "crashing_import.work" in pauses[0]
    assert "the next try is in 0.2 s (pause 1 in a row)" in pauses[0]
    assert "the next try is in 0.8 s (pause 3 in a row)" in pauses[2]


def test_others_go_on_while_one_task_is_left_out(crashing: Any, how: Path) -> None:
    """A module that always ends its importer keeps no other task of the worker waiting."""
    how.write_text("exit")

    @crashing.app.task(name="beside", retries=0)
    def beside() -> int:
        return 1

    async def main(worker: Worker) -> None:
        job = await crashing.work.enqueue_async(5)
        await until(lambda: len(job.attempts()) >= 2)
        later = await crashing.work.enqueue_async(6)
        for _ in range(5):
            assert await (await beside.enqueue_async()).result_async(timeout=30) == 1
        await asyncio.to_thread(how.write_text, "go on")
        assert (await job.result_async(timeout=60), await later.result_async(timeout=60)) == (5, 6)

    beside_a_worker(crashing.app, main)


STOPPED_EARLY = """
import os, signal, sys
if "--multiprocessing-fork" in sys.orig_argv:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
"""
"""A module that Python imports before anything else."""


def test_a_signal_that_stops_the_worker_ends_no_process_that_is_still_importing(
    crashing: Any, how: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C goes to all processes of a terminal, and a service manager's SIGTERM to all of a service."""
    how.write_text("go on")
    (tmp_path / "sitecustomize.py").write_text(STOPPED_EARLY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    async def main(_: Worker) -> Any:
        job = await crashing.work.enqueue_async(5)
        assert await job.result_async(timeout=60) == 5
        return job

    job = beside_a_worker(crashing.app, main)
    assert [attempt.outcome for attempt in job.attempts()] == ["succeeded"]
