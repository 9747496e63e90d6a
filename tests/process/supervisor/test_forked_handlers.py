"""runtime/executors/call: a handler that forks, and whose child returns as its parent does: one worker and one
result, not two.
"""

from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.job import Job
from tests.waiting import eventually
from tests.workers import WorkerProcess

pytestmark = pytest.mark.process

MODULE = """
import os
import sys
from penstock import Penstock

app = Penstock()


def fork():
    child = os.fork()
    if not child:
        return "a copy"
    os.waitpid(child, 0)
    return "the worker"

@app.task(name="in_process", executor="process")
def in_process(): return fork()

@app.task(name="in_thread")
def in_thread(): return fork()

@app.task(name="on_loop")
async def on_loop(): return fork()

@app.task(name="unheard")
async def unheard():
    child = os.fork()
    if not child:
        sys.stderr.close()
        return "a copy"
    os.waitpid(child, 0)
    return "the worker"
"""


@pytest.mark.parametrize("name", ["in_process", "in_thread", "on_loop"])
def test_the_copy_ends_where_it_would_come_back(
    name: str,
    sqlite_url: str,
    app_on: Callable[[str], Penstock],
    workers_on: Callable[[str], Callable[..., WorkerProcess]],
) -> None:
    app = app_on(sqlite_url)

    @app.task(name=name)
    def forks() -> str:
        raise AssertionError("only workers run this")

    jobs: list[Job[str]] = [forks.enqueue(), forks.enqueue()]
    worker = workers_on(sqlite_url)("--processes", "0", "--concurrency", "1", module=MODULE)
    assert [job.result(timeout=30) for job in jobs] == ["the worker", "the worker"]
    assert worker.stop() == 0
    eventually(lambda: worker.log.count(f"{name} forked, and the child came back from it") == 2)


def test_a_copy_that_cannot_say_so_ends_all_the_same(
    sqlite_url: str,
    app_on: Callable[[str], Penstock],
    workers_on: Callable[[str], Callable[..., WorkerProcess]],
) -> None:
    app = app_on(sqlite_url)

    @app.task(name="unheard")
    def forks() -> str:
        raise AssertionError("only workers run this")

    job = forks.enqueue()
    worker = workers_on(sqlite_url)("--processes", "0", module=MODULE)
    assert job.result(timeout=30) == "the worker"
    assert worker.stop() == 0
