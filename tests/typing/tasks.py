"""Right uses of tasks, jobs and settings, as type checkers see them.

Nothing here is run. `make types` reads it, and `tests/typing/test_checkers.py` has mypy and pyright read it with the
wheel installed.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from sqlalchemy import Connection

from penstock import Concurrency, Penstock, Rate, Retry, Snooze, current
from penstock.job import AttemptRecord, Job
from penstock.schedules.schedule import Schedule, Tick
from penstock.values.status import JobStatus

app = Penstock("sqlite://", processes=2, reap_after="30s", queues=["mail:10"], log_level="info", schema=None)


@app.task
def double(n: int) -> int:
    return 2 * n


@app.task(queue="slow", retries=Retry(max=5, delay=10), timeout=timedelta(seconds=30), executor="async")
async def add(a: int, b: int = 1) -> int:
    return a + b


@app.task(limits=[Concurrency(5, key="n"), Rate(100, per=60)], retries=2)
def numbers(n: int) -> Iterator[int]:
    yield from range(n)


@app.task
async def letters(n: int) -> AsyncIterator[str]:
    for _ in range(n):
        yield "a"


@app.task
def anything(n: int) -> Any:
    return n


@app.task(name="poll")
def poll() -> str | Snooze:
    return Snooze(5)


def enqueued() -> None:
    assert_type(double(1), int)
    assert_type(double.enqueue(1), Job[int])
    assert_type(double.enqueue(n=1).result(), int)
    assert_type(add.enqueue(1, 2), Job[int])
    assert_type(add.enqueue(1).result(timeout=5), int)
    assert_type(add.enqueue_many([(1, 2), {"a": 1}]), list[Job[int]])
    assert_type(numbers.enqueue(3).result(), list[int])
    assert_type(letters.enqueue(3).result(), list[str])
    assert_type(letters.enqueue_many([(3,)])[0].result(), list[str])
    assert_type(anything.enqueue(3), Job[Any])
    assert_type(add.options(priority=3, delay=60, key="a", connection=None).enqueue(1, 2).result(), int)
    assert_type(double.options(at=datetime.now(UTC), queue=None).enqueue(1).status, JobStatus)
    assert_type(add.enqueue(1).attempts(), list[AttemptRecord])
    wider: list[Job[float]] = [add.enqueue(1), double.enqueue(2)]
    assert_type(wider[0].result(), float)


async def enqueued_async() -> None:
    assert_type(await add(1), int)
    assert_type(await (await add.enqueue_async(1, 2)).result_async(), int)
    assert_type(await add.enqueue(1, 2).result_async(timeout=1), int)
    assert_type(await letters.enqueue_many_async([(1,)]), list[Job[list[str]]])


def scheduled() -> None:
    assert_type(double.schedule("0 3 * * *", tz="Europe/Berlin", name="nightly", args=(1,)), Schedule)
    made = app.schedules.create(add, every=90, missed="latest", overlap="skip", kwargs={"a": 1}, paused=True)
    assert_type(made.update(cron="0 4 * * *"), Schedule)
    assert_type(made.ticks(limit=5), list[Tick])
    assert_type(made.next(10), list[datetime])
    assert_type(app.schedules(prefix="tenant:"), list[Schedule])


def charge(order: int, currency: str = "EUR") -> str:
    return f"{order} {currency}"


async def charge_async(order: int) -> str:
    return str(order)


@app.task
def handler(order: int) -> None:
    job = current()
    assert_type(job.id, str)
    assert_type(job.scheduled_for, datetime | None)
    assert_type(job.once("charge", charge, order, currency="USD"), str)
    with job.transaction() as connection:
        assert_type(connection, Connection)
        job.complete(order)


@app.task
async def async_handler(order: int) -> None:
    job = current()
    assert_type(await job.once("charge", charge_async, order), str)
    assert_type(await job.once_async("charge", charge_async, order), str)
    assert_type(await job.once_async("more", charge, order, "USD"), str)
    async with job.transaction() as connection:
        await connection.execute("SELECT 1")
