"""async_bridge, job_transaction: a handler that is cancelled on its way into or out of `async with
job.transaction()` leaves nothing open.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Connection

import penstock
from penstock import Penstock, Retry
from penstock.queue import settle
from penstock.testing import drain, inline
from tests.conformance.receipts import INSERT, receipts, with_receipts
from tests.waiting import until


@pytest.fixture
def app(make_app: Callable[..., Penstock]) -> Penstock:
    return with_receipts(make_app())


class Held:
    """A place where a thread is held until it is let go."""

    def __init__(self) -> None:
        self.here, self.go_on = threading.Event(), threading.Event()

    def stay(self) -> None:
        self.here.set()
        assert self.go_on.wait(30)

    async def cancelling(self, app: Penstock, work: Any, times: int = 1) -> None:
        """Cancel the coroutine while its thread is held; then let that go, and wait until all is given back."""
        pool: Any = app.database.engine.pool
        in_use = pool.checkedout()
        task = asyncio.ensure_future(work)
        await until(self.here.is_set)
        for _ in range(times):
            task.cancel()
            await _turns()
        assert task.cancelled()
        self.go_on.set()
        await until(lambda: pool.checkedout() == in_use)


async def _turns() -> None:
    """So many that whatever can go on without a thread has done so."""
    for _ in range(10):
        await asyncio.sleep(0)


def test_on_the_way_in(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread is about to have it opened; no caller is left that would close it."""
    held, is_held = Held(), settle.is_held

    def slowly(*args: Any) -> bool:
        held.stay()
        return is_held(*args)

    @app.task(retries=0)
    async def pay() -> str:
        async def enter() -> None:
            async with penstock.current().transaction():
                pytest.fail("it was cancelled before")

        monkeypatch.setattr(settle, "is_held", slowly)
        await held.cancelling(app, enter())
        monkeypatch.undo()
        return "went on"

    job = pay.enqueue()
    drain(app)
    assert job.result(timeout=0) == "went on"


def test_on_the_way_out(app: Penstock) -> None:
    """A statement that no task awaits is still under way. First it is not waited for, then its undoing is not."""
    held = Held()

    def slowly(connection: Connection) -> None:
        held.stay()
        connection.execute(INSERT, {"note": "lost"})

    @app.task(retries=0)
    async def pay() -> str:
        async def write() -> None:
            async with penstock.current().transaction() as connection:
                connection.run_sync(slowly)
                connection.execute(INSERT, {"note": "never sent"})

        await held.cancelling(app, write(), times=2)
        return "went on"

    job = pay.enqueue()
    drain(app)
    assert receipts(app) == []
    assert job.result(timeout=0) == "went on"


def test_inside_and_on_the_way_out(app: Penstock) -> None:
    """The end waits for its turn in the thread; it cannot be called off."""
    held = Held()

    @app.task(retries=0)
    async def pay() -> str:
        async def write() -> None:
            async with penstock.current().transaction() as connection:
                connection.run_sync(lambda _connection: held.stay())
                await asyncio.Event().wait()

        await held.cancelling(app, write(), times=2)
        return "went on"

    job = pay.enqueue()
    drain(app)
    assert job.result(timeout=0) == "went on"


def test_a_statement_that_was_called_off_is_no_problem(app: Penstock) -> None:
    held = Held()

    @app.task(retries=0)
    async def pay() -> None:
        async with penstock.current().transaction() as connection:
            first = connection.run_sync(lambda _connection: held.stay())
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await connection.execute(INSERT, {"note": "called off"})
            held.go_on.set()
            await first
            connection.execute(INSERT, {"note": "paid"})

    job = pay.enqueue()
    drain(app)
    assert job.status == "succeeded"
    assert receipts(app) == ["paid"]


def test_what_was_done_once_is_remembered_by_one_who_is_cancelled(app: Penstock) -> None:
    """The marker waits for a thread when its handler's time is over: what was done must not be done again."""
    charged: list[int] = []
    held = Held()

    async def charge(pool: ThreadPoolExecutor) -> str:
        charged.append(1)
        pool.submit(held.stay)
        return "receipt"

    @app.task(retries=Retry(max=1, delay=0))
    async def pay() -> str:
        with ThreadPoolExecutor(1) as pool:
            asyncio.get_running_loop().set_default_executor(pool)
            paying = asyncio.ensure_future(penstock.current().once("charge", charge, pool))
            if penstock.current().attempt == 1:
                await until(held.here.is_set)
                await _turns()
                paying.cancel()
                await _turns()
                held.go_on.set()
            return str(await paying)

    job = pay.enqueue()
    drain(app)
    assert job.result(timeout=0) == "receipt"
    assert charged == [1]


def test_who_is_cancelled_while_work_runs_inline_does_not_hold_up_the_loop(app: Penstock) -> None:
    """What it waits for may well be on that loop."""
    held = Held()

    @app.task(retries=0)
    def note() -> str:
        held.stay()
        return "went on"

    async def main() -> str:
        with inline(app):
            enqueuing = asyncio.create_task(note.options(key="a").enqueue_async())
            await until(held.here.is_set)
            enqueuing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await enqueuing
            held.go_on.set()
        return await (await note.options(key="a").enqueue_async()).result_async(timeout=30)

    assert asyncio.run(main()) == "went on"
