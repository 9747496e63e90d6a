"""runtime/worker, runtime/shutdown: a worker whose owner is cancelled while it starts or stops, or whose event loop
ends: it leaves nothing behind.

What it held goes back and spends nothing; no thread of it goes on, for that would keep the claims of the dead alive.
"""

import asyncio
import threading
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import PenstockError
from penstock.queue import processes
from penstock.runtime.liveness.heartbeat import Heartbeat
from penstock.runtime.liveness.housekeeping import Housekeeping
from penstock.runtime.worker import Worker
from penstock.task import Task
from tests.conformance.rows import count, state
from tests.waiting import eventually, until

LOOPS = ("penstock-arrive", "penstock-heartbeat", "penstock-pump", "penstock-housekeeping")


def loops() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(LOOPS)]


def has_left(app: Penstock) -> bool:
    return not loops() and count(app, "processes") == 0


def untouched(app: Penstock, job_id: str) -> bool:
    left = state(app, job_id)
    return (left["status"], left["retry_count"], left["crash_count"]) == ("available", 0, 0)


@pytest.fixture
def begun() -> threading.Event:
    return threading.Event()


@pytest.fixture
def hang(app: Penstock, begun: threading.Event) -> Task[[], Any]:
    @app.task(retries=0, max_crashes=0)
    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    app.prepare()
    return hang


@pytest.mark.parametrize("times", [1, 2])
def test_cancelled_while_it_stops(
    app: Penstock, hang: Task[[], Any], begun: threading.Event, times: int
) -> None:
    """A caller that has no more patience cancels the stop: what still runs is given back at once."""

    async def main() -> str:
        worker = app.worker()
        await worker.start()
        job = await hang.enqueue_async()
        await until(begun.is_set)
        stopping = asyncio.create_task(worker.stop())
        await until(worker.stopping.is_set)
        for _ in range(times):
            stopping.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await stopping
        await worker.stop()
        assert has_left(app)
        return job.id

    assert untouched(app, asyncio.run(main()))


def test_ctrl_c_twice(app: Penstock, hang: Task[[], Any], begun: threading.Event) -> None:
    """The second one ends the loop while the worker lets its handlers finish: all tasks are cancelled together."""
    ids: list[str] = []

    async def main() -> None:
        async with app.worker() as worker:
            ids.append((await hang.enqueue_async()).id)
            await until(begun.is_set)
            asyncio.get_running_loop().call_soon(interrupt, worker)

    def interrupt(worker: Worker) -> None:
        assert worker.stopping.is_set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    assert has_left(app)
    assert untouched(app, *ids)


def test_its_loop_ends_and_it_was_not_stopped(
    app: Penstock, hang: Task[[], Any], begun: threading.Event
) -> None:
    async def main() -> str:
        await app.worker().start()
        job = await hang.enqueue_async()
        await until(begun.is_set)
        return job.id

    job_id = asyncio.run(main())
    assert has_left(app)
    assert untouched(app, job_id)


@pytest.fixture
def registering(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """It is about to write its row; it may do so."""
    here, go_on, register = threading.Event(), threading.Event(), processes.register

    def slowly(*args: Any) -> None:
        here.set()
        assert go_on.wait(30)
        register(*args)

    monkeypatch.setattr(processes, "register", slowly)
    return here, go_on


def test_cancelled_while_it_registers(
    app: Penstock, registering: tuple[threading.Event, threading.Event]
) -> None:
    here, go_on = registering

    async def main() -> None:
        async def embedded() -> None:
            async with app.worker():
                pytest.fail("it was cancelled before")

        starting = asyncio.create_task(embedded())
        await until(here.is_set)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    asyncio.run(main())
    go_on.set()
    eventually(lambda: has_left(app))


def test_stopped_while_it_registers(
    app: Penstock, registering: tuple[threading.Event, threading.Event]
) -> None:
    here, go_on = registering

    async def main() -> None:
        worker = app.worker()
        starting = asyncio.create_task(worker.start())
        await until(here.is_set)
        await worker.stop()
        go_on.set()
        with pytest.raises(PenstockError, match="stopped before it had begun"):
            await starting
        await until(lambda: has_left(app))

    asyncio.run(main())


def test_one_that_is_started_twice_is_refused_and_goes_on(app: Penstock) -> None:
    """Its threads were there twice. When the inner block ended no thread worked any more, and one set never ended."""

    @app.task
    async def same(value: int) -> int:
        return value

    async def main() -> None:
        worker = app.worker()
        async with worker:
            with pytest.raises(PenstockError, match="make another"):
                await worker.__aenter__()
            job = await same.enqueue_async(1)
            assert await job.result_async(timeout=30) == 1
        with pytest.raises(PenstockError, match="make another"):
            await worker.start()

    asyncio.run(main())


@pytest.mark.parametrize("service", [Heartbeat, Housekeeping])
def test_one_that_cannot_start_leaves(
    app: Penstock, hang: Task[[], Any], monkeypatch: pytest.MonkeyPatch, service: Any
) -> None:
    """The system has no more threads: those that it has given by then must end."""

    def refuse(_self: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(service, "start", refuse)

    async def main() -> None:
        worker = app.worker()
        with pytest.raises(RuntimeError, match="new thread"):
            await worker.start()
        await until(lambda: has_left(app))
        await worker.stop()

    asyncio.run(main())
