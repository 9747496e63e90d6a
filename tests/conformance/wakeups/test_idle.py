"""runtime/pump/idle: a worker with nothing to do asks nothing, and yet misses nothing: whatever makes work ready tells
it.

Work without a wake-up is found by an idle check. See also `test_idle_is_safe.py`.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.orm import Session

from penstock import Penstock
from penstock.queue.wakeups import Wakeups
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conformance.idle_workers import PROMPT, at_rest, declare, each, soon_calm
from tests.waiting import until

AppOn = Callable[..., Penstock]
Apart = tuple[Penstock, Penstock]
BEAT = "SELECT {now} - heartbeat_at FROM {processes} WHERE id = :id"
AGE = "UPDATE {processes} SET heartbeat_at = heartbeat_at - 25000000"


@pytest.fixture
def apart(app_on: AppOn, postgres_url: str) -> Apart:
    """Who gives work, and who does it."""
    return declare(app_on(postgres_url)), declare(app_on(postgres_url))


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    made = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"))
    yield made
    made.dispose()


def test_whatever_makes_jobs_ready_is_told(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    client, consumer = apart
    soon_calm(monkeypatch)
    tasks = client.tasks

    async def result(task: str, *args: object, **options: Any) -> None:
        await (await tasks[task].options(**options).enqueue_async(*args)).result_async(PROMPT)

    async def many(task: str, calls: list[tuple[int, ...]]) -> None:
        for job in await tasks[task].enqueue_many_async(calls):
            await job.result_async(PROMPT)

    async def fail() -> None:
        job = await tasks["fail"].enqueue_async()
        await until(lambda: job.status == "failed", PROMPT)

    async def retry_one() -> None:
        (job,) = client.dead_letters()
        assert job.retry()
        await until(lambda: job.status == "failed", PROMPT)

    async def retry_all() -> None:
        (job,) = client.dead_letters()
        assert client.dead_letters().retry() == 1
        assert await job.result_async(PROMPT) == "done"

    async def main(worker: Worker) -> None:
        await each(
            worker,
            partial(result, "note", 1),
            partial(result, "note", 2, priority=-5, queue="others"),
            partial(many, "note", [(number,) for number in range(20)]),
            partial(result, "note", 3, delay=0.2),
            partial(result, "note", 4, delay=3),
            partial(result, "stumble"),
            partial(result, "doze"),
            partial(many, "single", [()] * 3),
            fail,
            retry_one,
            retry_all,
        )

    beside_a_worker(consumer, main)


def test_a_callers_transaction_tells_when_it_commits_and_each_by_itself(
    app_on: AppOn, postgres_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, consumer = (declare(app_on(postgres_url, wakeup_interval=60)) for _ in range(2))
    soon_calm(monkeypatch)
    note = client.tasks["note"]

    async def committed_later() -> None:
        with Session(engine) as session:
            job = note.options(connection=session).enqueue(1)
            session.flush()
            await asyncio.sleep(0.1)  # it is open, and the worker rests
            session.commit()
        await job.result_async(PROMPT)

    async def after_one_that_was_not() -> None:
        with Session(engine) as open_one, Session(engine) as session:
            note.options(connection=open_one).enqueue(2)
            job = note.options(connection=session).enqueue(3)
            session.commit()
            await job.result_async(PROMPT)
            open_one.rollback()

    beside_a_worker(consumer, lambda worker: each(worker, committed_later, after_one_that_was_not))


def test_what_is_for_others_disturbs_no_idle_worker(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    client, consumer = apart
    soon_calm(monkeypatch)

    async def main(worker: Worker) -> None:
        await at_rest(worker)
        begun = worker.rest._begun
        for _ in range(3):
            await client.tasks["note"].enqueue_async(1)
            await asyncio.sleep(0.02)
        job = await client.tasks["note"].options(queue="mail", delay=0.3).enqueue_async(4)
        await asyncio.sleep(0.1)
        assert worker.rest.is_on
        assert worker.rest._begun is begun
        assert await job.result_async(PROMPT) == 8

    beside_a_worker(consumer, main, queues="mail")


def test_work_that_is_given_back_is_told(
    app_on: AppOn, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving, staying = declare(app_on(postgres_url), held=60), declare(app_on(postgres_url))
    soon_calm(monkeypatch)

    async def main(worker: Worker) -> None:
        job = await leaving.tasks["hold"].enqueue_async()
        await until(lambda: job.status == "running", PROMPT)
        async with staying.worker() as other:
            await at_rest(other)
            await worker.stop(timeout=0)
            assert await job.result_async(PROMPT) == "held"

    beside_a_worker(leaving, main)


def test_what_no_wakeup_tells_of_is_found_by_a_glance(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the enqueuer dies between its commit and the wake-up, or is one that sends no wake-ups."""
    client, consumer = apart
    soon_calm(monkeypatch, interval=0.5)
    monkeypatch.setattr(Wakeups, "_may_send_now", lambda *_: False)
    monkeypatch.setattr(Wakeups, "_send_soon", lambda *_: None)

    async def main(worker: Worker) -> None:
        waits: list[dict[str, Any]] = [{}, {"delay": 0.3}]
        for options in waits:
            await at_rest(worker)
            job = await client.tasks["note"].options(**options).enqueue_async(4)
            assert await job.result_async(PROMPT) == 8

    beside_a_worker(consumer, main, queues="mail:3,default:5")


def test_a_task_that_is_declared_later_finds_its_work(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    client, consumer = apart
    soon_calm(monkeypatch)

    async def late() -> str:
        return "known"

    async def main(worker: Worker) -> None:
        job = await client.task(name="late")(late).enqueue_async()
        await asyncio.sleep(0.2)
        await at_rest(worker)
        consumer.task(name="late")(late)
        assert await job.result_async(PROMPT) == "known"

    beside_a_worker(consumer, main)
