"""result_wait: callers that wait for a result go on waiting through an outage, until their own timeout."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock import Penstock
from penstock.database.database import Database
from penstock.errors import DatabaseUnavailable
from penstock.testing import drain
from penstock.values.ids import new_id
from tests.process.outages.test_outage_readonly import read_only
from tests.servers.keeper import cheap_url
from tests.servers.postgres import Postgres
from tests.servers.server import Server

pytestmark = pytest.mark.process

AppOn = Callable[..., Penstock]
LONG = 120.0
SHORT = 5.0
"""Longer than a single call tries by itself."""


class Scene:
    """A server of our own, and something to wait for."""

    def __init__(self, server: Server, app_on: AppOn) -> None:
        self.server = server
        self.app_on = app_on
        server.create_database("work")
        self.url = cheap_url(server, "work")
        self.app = app_on(self.url)

        @self.app.task(name="add")
        def add(a: int, b: int) -> int:
            return a + b

        @self.app.pipeline(name="sum")
        def sum_up(a: int) -> Any:
            return add(add(a, 1), 1)

        self.job = add.enqueue(1, 2)
        self.run = sum_up.trigger(1)

    def waiters(self) -> list[Callable[[float | None], int]]:
        """Each way to wait; the third knows of the job no more than its id."""
        job, run, by_id = self.job, self.run, self.app.job(self.job.id)
        return [job.result, _sync(job.result_async), by_id.result, run.result, _sync(run.result_async)]


def _sync(wait: Callable[[float | None], Awaitable[int]]) -> Callable[[float | None], int]:
    async def main(timeout: float | None) -> int:
        return await wait(timeout)

    return lambda timeout: asyncio.run(main(timeout))


@pytest.fixture(params=["postgres", "mariadb"])
def scene(request: pytest.FixtureRequest, app_on: AppOn) -> Scene:
    return Scene(request.getfixturevalue(f"{request.param}_server"), app_on)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`refused(5)`: waits until so many have been told that there is no database."""
    told = threading.Semaphore(0)
    explained = Database.explained

    def telling(database: Database, error: Exception) -> Exception:
        told.release()
        return explained(database, error)

    def wait(count: int) -> None:
        assert all(told.acquire(timeout=60) for _ in range(count))

    monkeypatch.setattr(Database, "explained", telling)
    return wait


@pytest.mark.parametrize("timeout", [LONG, None])
def test_who_waits_gets_the_result_after_an_outage(
    scene: Scene, refused: Callable[[int], None], timeout: float | None
) -> None:
    waiters = scene.waiters()
    with ThreadPoolExecutor(len(waiters)) as threads:
        scene.server.stop(immediate=True)
        waiting = [threads.submit(wait, timeout) for wait in waiters]
        try:
            refused(len(waiters))
        finally:
            scene.server.start()
        drain(scene.app)
        assert [each.result(LONG) for each in waiting] == [3, 3, 3, 3, 3]


def test_an_outage_that_lasts_is_said_when_the_time_is_over(scene: Scene) -> None:
    def waited(wait: Callable[[float | None], int]) -> float:
        began = time.monotonic()
        with pytest.raises(DatabaseUnavailable, match="does not answer as it should"):
            wait(SHORT)
        return time.monotonic() - began

    scene.server.stop()
    with ThreadPoolExecutor(3) as threads:
        assert min(threads.map(waited, scene.waiters()[1:4])) >= SHORT


def test_a_database_that_never_was_there_is_waited_for_no_longer_than_said(scene: Scene) -> None:
    scene.server.stop()
    job = scene.app_on(scene.url).job(new_id())
    with pytest.raises(DatabaseUnavailable):
        job.result()
    began = time.monotonic()
    with pytest.raises(DatabaseUnavailable):
        job.result(SHORT)
    assert time.monotonic() - began >= SHORT


def test_what_does_not_pass_by_itself_is_said_at_once(scene: Scene) -> None:
    scene.app.database.drop_connections()
    scene.server.admin.drop_database("work")
    with pytest.raises(DatabaseUnavailable, match="Create that database"):
        scene.job.result(LONG)


def test_who_waits_gets_the_result_after_a_failover(app_on: AppOn, postgres_server: Postgres) -> None:
    """Of several hosts none takes writes for a while. It was said after four seconds, with two minutes to wait."""
    scene = Scene(postgres_server, app_on)
    place = f"127.0.0.1:{postgres_server.port}"
    app = app_on(f"postgresql://postgres@{place},{place}/work")
    app.prepare()
    with ThreadPoolExecutor(1) as threads:
        with read_only(postgres_server.url("work")):
            waiting = threads.submit(app.job(scene.job.id).result, LONG)
            with pytest.raises(TimeoutError):
                waiting.result(SHORT * 2)  # longer than a single call tries
        drain(scene.app)
        assert waiting.result(LONG) == 3
