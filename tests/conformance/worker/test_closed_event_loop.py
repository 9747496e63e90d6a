"""runtime/shutdown: a worker whose event loop is closed under it, with all that was on it: it notices, gives back
what it holds, ends.
"""

import asyncio
import gc
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from penstock import Penstock
from penstock.runtime.worker import Worker
from penstock.task import Task
from penstock.telemetry.events import Event, ProcessDeserted, TroubleBegan
from tests.conformance.reconcile.cloud import Cloud, Volume, declare
from tests.conformance.rows import count
from tests.conformance.worker.test_cancelled_workers import has_left, untouched
from tests.waiting import eventually, until

# Python says so for each coroutine of a closed loop when it is gone, and for what it does on its way out.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def go() -> Iterator[threading.Event]:
    go = threading.Event()
    yield go
    go.set()


@pytest.fixture
def begun() -> threading.Event:
    return threading.Event()


@pytest.fixture
def blocked(app: Penstock, go: threading.Event, begun: threading.Event) -> dict[str, Task[[], Any]]:
    @app.task(name="on_loop", retries=0, max_crashes=0)
    async def on_loop() -> None:
        begun.set()
        await asyncio.Event().wait()

    @app.task(name="in_thread", retries=0, max_crashes=0)
    def in_thread() -> None:
        begun.set()
        go.wait(60)

    app.prepare()
    return {"on_loop": on_loop, "in_thread": in_thread}


class Deserted:
    """A loop that is run for a while, and then closed as it is."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.loop = asyncio.new_event_loop()
        self.kept: list[Any] = []
        self.noticed: list[Event] = []
        for kind in (ProcessDeserted, TroubleBegan):
            app.events.on(kind, self.noticed.append)

    def run(self, main: Coroutine[Any, Any, Worker], *, kept: bool) -> Worker:
        worker = self.loop.run_until_complete(main)
        if (
            kept
        ):  # else Python ends the coroutines of a closed loop, one by one, as nothing refers to them any more
            self.kept += asyncio.all_tasks(self.loop)
        self.loop.close()
        return worker


@pytest.fixture
def deserted(app: Penstock) -> Iterator[Deserted]:
    deserted = Deserted(app)
    yield deserted
    deserted.kept.clear()
    gc.collect()


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("name", ["on_loop", "in_thread"])
def test_what_it_holds_goes_back(
    app: Penstock,
    deserted: Deserted,
    blocked: dict[str, Task[[], Any]],
    begun: threading.Event,
    name: str,
    kept: bool,
) -> None:
    jobs = [blocked[name].enqueue() for _ in range(5)]

    async def main() -> Worker:
        worker = app.worker(concurrency=2)
        await worker.start()
        await until(begun.is_set)
        return worker

    worker = deserted.run(main(), kept=kept)
    eventually(lambda: has_left(app))
    assert all(untouched(app, job.id) for job in jobs)
    assert count(app, "claims") == 0
    assert [type(event) for event in deserted.noticed] == [ProcessDeserted]
    assert worker.stopping.is_set()


@pytest.mark.parametrize("kept", [True, False])
def test_inside_its_block(
    app: Penstock, deserted: Deserted, blocked: dict[str, Task[[], Any]], begun: threading.Event, kept: bool
) -> None:
    job = blocked["on_loop"].enqueue()
    workers: list[Worker] = []

    async def embedded() -> None:
        async with app.worker() as worker:
            workers.append(worker)
            await asyncio.Event().wait()

    async def main() -> Worker:
        deserted.kept.append(asyncio.create_task(embedded()))
        await until(begun.is_set)
        return workers[0]

    deserted.run(main(), kept=kept)
    if not kept:
        deserted.kept.clear()
    eventually(lambda: has_left(app))
    assert untouched(app, job.id)


def test_while_it_stops(
    app: Penstock, deserted: Deserted, blocked: dict[str, Task[[], Any]], begun: threading.Event
) -> None:
    job = blocked["on_loop"].enqueue()

    async def main() -> Worker:
        worker = app.worker()
        await worker.start()
        await until(begun.is_set)
        deserted.kept.append(asyncio.create_task(worker.stop()))
        await until(worker.stopping.is_set)
        return worker

    deserted.run(main(), kept=True)
    eventually(lambda: has_left(app))
    assert untouched(app, job.id)


def test_what_was_claimed_just_then_goes_back(
    app: Penstock, deserted: Deserted, blocked: dict[str, Task[[], Any]]
) -> None:

    async def main() -> Worker:
        worker = app.worker()
        await worker.start()
        return worker

    worker = deserted.run(main(), kept=True)
    worker.heartbeat.look_up = lambda: None  # it has not noticed yet
    jobs = [blocked["on_loop"].enqueue() for _ in range(5)]
    claims = app.database.in_transaction(worker.source.claim, 5)
    worker.source.committed()
    worker.dispatcher.hand_over(claims)
    eventually(lambda: all(untouched(app, job.id) for job in jobs))
    assert worker.dispatcher.room() == 0
    worker.heartbeat.look_up = worker._shutdown.go_if_deserted
    eventually(lambda: has_left(app))


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_rows_go_back(
    app: Penstock, deserted: Deserted, go: threading.Event, begun: threading.Event, kind: str, kept: bool
) -> None:
    cloud = Cloud(app)
    cloud.volumes(4)

    async def on_loop(_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    def in_thread(_: Any) -> None:
        begun.set()
        go.wait(60)

    declare(app, Volume, on_loop if kind == "async" else in_thread, workers=2, lease=3600)

    async def main() -> Worker:
        worker = app.worker()
        await worker.start()
        await until(begun.is_set)
        return worker

    deserted.run(main(), kept=kept)
    eventually(lambda: has_left(app))
    rows = cloud.all(Volume)
    assert [(row.lock_token, row.process_attempts) for row in rows] == [(None, 0)] * 4


def test_rows_on_their_way_to_the_loop_go_back(app: Penstock, deserted: Deserted) -> None:
    cloud = Cloud(app)
    declare(app, Volume, lambda _: None, workers=4, lease=3600)

    async def main() -> Worker:
        worker = app.worker()
        await worker.start()
        return worker

    worker = deserted.loop.run_until_complete(main())
    cloud.volumes(4)
    app.hint(Volume)
    # The loop stands still, and the pump does not.
    eventually(lambda: worker.rows.busy == 4)
    deserted.loop.close()
    eventually(lambda: has_left(app))
    assert [row.lock_token for row in cloud.all(Volume)] == [None] * 4
