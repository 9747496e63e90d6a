"""async_bridge: `app.close()` while calls are under way: begun calls end, the others get `AppClosed`."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock import Penstock
from penstock.errors import AppClosed
from penstock.job import Job
from penstock.task import Task
from penstock.testing import drain
from tests.conformance.rows import count
from tests.waiting import eventually, until


@pytest.fixture
def double(app: Penstock) -> Task[[int], int]:
    @app.task(name="double")
    def double(number: int) -> int:
        return number * 2

    app.prepare()
    return double


class Crowd:
    """As many calls as there are doors, each of which holds one until it is let go."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.inside = threading.Semaphore(0)
        self.go = threading.Event()

    def hold(self) -> str:
        with self.app.database.reading():
            self.inside.release()
            assert self.go.wait(60)
        return "done"

    async def enter(self) -> list[asyncio.Task[str]]:
        calls = [asyncio.create_task(self.app.bridge.run(self.hold)) for _ in range(self.app.bridge.threads)]
        for _ in calls:
            await asyncio.to_thread(self.inside.acquire, timeout=60)
        return calls


class Scene(NamedTuple):
    app: Penstock
    double: Task[[int], int]
    job: Job[int]


QUEUED: dict[str, Callable[[Scene], Any]] = {
    "enqueue": lambda at: at.double.enqueue_async(2),
    "enqueue_many": lambda at: at.double.enqueue_many_async([(2,), (3,)]),
    "status": lambda at: at.job.status_async(),
    "result": lambda at: at.job.result_async(),
    "cancel": lambda at: at.job.cancel_async(),
    "runs": lambda at: at.app.runs_async(),
    "trigger": lambda at: at.app.flow("p").start(at.double).trigger_async(1),
}


@pytest.mark.parametrize("call", QUEUED)
def test_what_has_not_begun_is_told_and_what_has_ends(
    app: Penstock, double: Task[[int], int], call: str
) -> None:
    job = double.enqueue(1)

    async def main() -> None:
        crowd = Crowd(app)
        holding = await crowd.enter()
        queued = [asyncio.create_task(QUEUED[call](Scene(app, double, job))) for _ in range(3)]
        await asyncio.sleep(0)
        app.close()
        for each in queued:
            with pytest.raises(AppClosed, match="the app was closed before .* written nothing"):
                await asyncio.wait_for(each, 30)
            assert not each.cancelled()
        crowd.go.set()
        assert await asyncio.gather(*holding) == ["done"] * len(holding)
        await double.enqueue_async(5)

    asyncio.run(main())
    assert (count(app, "jobs"), count(app, "runs")) == (2, 0)
    assert drain(app) == 2


def test_a_caller_that_is_cancelled_is_cancelled(app: Penstock, double: Task[[int], int]) -> None:
    async def main() -> None:
        crowd = Crowd(app)
        holding = await crowd.enter()
        queued = asyncio.create_task(double.enqueue_async(2))
        await asyncio.sleep(0)
        queued.cancel()
        app.close()
        with pytest.raises(asyncio.CancelledError):
            await queued
        crowd.go.set()
        await asyncio.gather(*holding)

    asyncio.run(main())
    assert count(app, "jobs") == 0


def test_connections_in_use_are_closed_when_their_calls_end(app: Penstock, double: Task[[int], int]) -> None:
    """They were kept for the next call, which never came."""
    given_back: list[Any] = []

    async def main() -> None:
        crowd = Crowd(app)
        holding = await crowd.enter()
        app.close()
        crowd.go.set()
        await asyncio.gather(*holding)
        while (spare := app.database.connections.spares.take()) is not None:
            given_back.append(spare)

    asyncio.run(main())
    assert given_back == []


def test_a_caller_that_waits_for_a_result_is_told_at_once(
    make_app: Callable[..., Penstock],
) -> None:
    """To ask again would open what was closed."""
    app = make_app(result_poll_interval=300.0)

    @app.task(name="double")
    def double(number: int) -> int:
        return number * 2

    job, run = double.enqueue(1), app.flow("p").start(double).trigger(1)
    told: list[BaseException] = []

    def wait(result: Callable[[], object]) -> None:
        try:
            result()
        except BaseException as error:
            told.append(error)

    waiters = [threading.Thread(target=wait, args=(each.result,)) for each in (job, run)]
    for waiter in waiters:
        waiter.start()

    async def main() -> None:
        waiting = [asyncio.create_task(job.result_async()), asyncio.create_task(run.result_async())]
        await until(lambda: len(app.wakeups._listeners) == 4)
        await app.close_async()
        for each in waiting:
            with pytest.raises(AppClosed, match="the app was closed"):
                await asyncio.wait_for(each, 30)

    asyncio.run(main())
    eventually(lambda: not any(waiter.is_alive() for waiter in waiters))
    assert [type(error) for error in told] == [AppClosed, AppClosed]
    assert drain(app) == 2
    assert job.result(0) == run.result(0) == 2
