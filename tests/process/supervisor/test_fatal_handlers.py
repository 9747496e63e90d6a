"""runtime/supervisor/worker_process: a handler that takes its interpreter down: the log says where. One that only
tries to is an error like any other.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.errors import JobFailed
from tests.waiting import eventually
from tests.workers import WorkerProcess

pytestmark = pytest.mark.process

MODULE = """
import ctypes
from penstock import Penstock

app = Penstock()


def read_nowhere():
    ctypes.string_at(0)

@app.task(name="in_process", executor="process")
def in_process(): read_nowhere()

@app.task(name="in_thread")
def in_thread(): read_nowhere()
"""


@pytest.mark.parametrize("name", ["in_process", "in_thread"])
def test_a_segmentation_fault_shows_its_place(
    name: str,
    tmp_path: Path,
    app_on: Callable[[str], Penstock],
    workers_on: Callable[[str], Callable[..., WorkerProcess]],
) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    worker = workers_on(url)("--processes", "1", module=MODULE)
    eventually(lambda: "(all) started" in worker.log)
    assert "alembic" not in worker.log
    app = app_on(url)

    @app.task(name=name, max_crashes=0)
    def read() -> None: ...

    with pytest.raises(JobFailed, match="crashes_exhausted"):
        read.enqueue().result(timeout=30)
    eventually(lambda: "Segmentation fault" in worker.log)
    eventually(lambda: "in read_nowhere" in worker.log)


ENDING = """
import asyncio
import sys
from penstock import Penstock

app = Penstock()


async def leave():
    sys.exit(3)


async def interrupt():
    raise KeyboardInterrupt


@app.task(name="leave", retries=0)
async def leaving():
    await asyncio.gather(leave(), asyncio.sleep(60))


@app.task(name="interrupt", retries=0)
async def interrupting():
    async with asyncio.TaskGroup() as group:
        group.create_task(interrupt())


@app.task(name="stop")
async def stop():
    asyncio.get_running_loop().call_soon(sys.exit)
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0.1)
    return "went on"


@app.task(name="neighbour")
async def neighbour():
    await asyncio.sleep(0.5)
    return "went on"
"""


@pytest.mark.parametrize("processes", ["0", "1"])
def test_no_handler_ends_the_loop_that_all_of_them_share(
    processes: str,
    tmp_path: Path,
    app_on: Callable[[str], Penstock],
    workers_on: Callable[[str], Callable[..., WorkerProcess]],
) -> None:
    """It would be given back with all its neighbours, and do the same to the next process."""
    url = f"sqlite:///{tmp_path}/shop.db"
    worker = workers_on(url)("--processes", processes, module=ENDING)
    app = app_on(url)
    tasks = {}
    for name in ("leave", "interrupt", "stop", "neighbour"):

        @app.task(name=name, retries=0)
        async def task() -> str: ...  # type: ignore[empty-body]

        tasks[name] = task
    neighbours = tasks.pop("neighbour").enqueue_many([()] * 4)
    jobs = {name: task.enqueue() for name, task in tasks.items()}
    for name, error in (("leave", "SystemExit: 3"), ("interrupt", "KeyboardInterrupt")):
        with pytest.raises(JobFailed, match=error):
            jobs[name].result(timeout=60)
    assert jobs["stop"].result(timeout=60) == "went on"
    assert [job.result(timeout=60) for job in neighbours] == ["went on"] * 4
    assert all(len(job.attempts()) == 1 for job in [*jobs.values(), *neighbours])
    assert worker.log.count("tried to end its worker") == 4
    assert worker.stop() == 0
