"""A worker with nothing to do asks nothing, and yet misses nothing: whatever makes work ready tells it.

What nobody tells of is found by a glance. Whoever is not sure to hear does not rest.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import Engine, make_url
from sqlalchemy.orm import Session

from penstock import Concurrency, Penstock, Rate, Retry, Snooze
from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.queue import claim, processes
from penstock.queue.wakeups import Wakeups
from penstock.runtime import rest
from penstock.runtime.worker import Worker
from penstock.values.ids import new_id, new_token
from tests.conformance.tasks.embedded import beside_a_worker
from tests.conformance.tasks.looking import rows
from tests.conformance.tasks.rested import PROMPT, asked, at_rest, each, soon_calm
from tests.waiting import until

AppOn = Callable[..., Penstock]
Apart = tuple[Penstock, Penstock]
BEAT = "SELECT {now} - heartbeat_at FROM {processes} WHERE id = :id"
AGE = "UPDATE {processes} SET heartbeat_at = heartbeat_at - 25000000"


def declare(app: Penstock, held: float = 0.0) -> Penstock:
    tries: Counter[str] = Counter()

    @app.task(name="note")
    async def note(number: int) -> int:
        return number * 2

    @app.task(name="hold")
    async def hold() -> str:
        await asyncio.sleep(held)
        return "held"

    @app.task(name="stumble", retries=Retry(3, delay=0.1, factor=1, jitter=0))
    async def stumble() -> str:
        tries["stumble"] += 1
        if tries["stumble"] < 3:
            raise ValueError("not yet")
        return "done"

    @app.task(name="doze")
    async def doze() -> str | Snooze:
        tries["doze"] += 1
        return "awake" if tries["doze"] > 1 else Snooze(0.5)

    @app.task(name="fail", retries=0)
    async def fail() -> str:
        tries["fail"] += 1
        if tries["fail"] < 3:
            raise ValueError("not yet")
        return "done"

    @app.task(name="single", limits=[Concurrency(1), Rate(100, per=60)])
    async def single() -> str:
        await asyncio.sleep(0.1)
        return "done"

    app.prepare()
    return app


@pytest.fixture
def apart(app_on: AppOn, postgres_url: str) -> Apart:
    """Who gives work, and who does it."""
    return declare(app_on(postgres_url)), declare(app_on(postgres_url))


@pytest.fixture
def engine(postgres_url: str) -> Iterator[Engine]:
    made = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"))
    yield made
    made.dispose()


@pytest.mark.parametrize("pooled", [False, True])
def test_whoever_rests_asks_nothing(
    app_on: AppOn, postgres_url: str, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = {"pooler": "transaction", "listen_url": postgres_url} if pooled else {}
    app = declare(app_on(postgres_url, **behind))
    soon_calm(monkeypatch)

    async def main(worker: Worker) -> None:
        await at_rest(worker)
        times = [time.monotonic()]
        asked(app, times, monkeypatch)
        # Whoever does not rest asks within a second. Others who move in beside it may be a reason to ask once.
        await until(lambda: time.monotonic() - times[-1] > 1.2, 2 * PROMPT)

    beside_a_worker(app, main)


def test_whatever_makes_jobs_ready_is_told(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    client, consumer = apart
    soon_calm(monkeypatch)
    tasks = client.tasks

    async def result(task: str, *args: object, **options: object) -> None:
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
    apart: Apart, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, consumer = apart
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


def test_what_nobody_tells_of_is_found_by_a_glance(apart: Apart, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the enqueuer dies between its commit and the wake-up, or is one that tells nobody."""
    client, consumer = apart
    soon_calm(monkeypatch, interval=0.5)
    monkeypatch.setattr(Wakeups, "_may_send_now", lambda *_: False)
    monkeypatch.setattr(Wakeups, "_send_soon", lambda *_: None)

    async def main(worker: Worker) -> None:
        for options in ({}, {"delay": 0.3}):
            await at_rest(worker)
            job = await client.tasks["note"].options(**options).enqueue_async(4)
            assert await job.result_async(PROMPT) == 8

    beside_a_worker(consumer, main, queues="mail:3,default:5")


def test_the_work_of_one_who_falls_silent_is_taken_back_at_that_very_time(
    app_on: AppOn, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, consumer = (declare(app_on(postgres_url, reap_after=2, heartbeat_interval=0.2)) for _ in range(2))
    soon_calm(monkeypatch, interval=1.0)

    def hold(tx: Transaction, dead: str) -> None:
        processes.register(tx, dead, "elsewhere", 1, "worker", None, "{}")
        claim.claim(tx, [Lane("default", 0, 0, 5)], ["note"], 5, new_token(), dead)

    async def main(worker: Worker) -> float:
        await at_rest(worker)
        worker.pump.claiming = False  # the other is quicker
        job = await client.tasks["note"].enqueue_async(4)
        client.database.in_transaction(hold, new_id())
        began = time.monotonic()
        assert job.status == "running"
        worker.pump.claiming = True
        await at_rest(worker)
        assert await job.result_async(2 * PROMPT) == 8
        return time.monotonic() - began

    assert 1.9 < beside_a_worker(consumer, main) < PROMPT


def test_a_claim_renews_the_row_at_once(
    app_on: AppOn, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = declare(app_on(postgres_url), held=60)
    soon_calm(monkeypatch)

    async def main(worker: Worker) -> None:
        await at_rest(worker)
        app.database.in_transaction(lambda tx: tx.run(AGE))
        worker.heartbeat.last_beat -= 25
        job = await app.tasks["hold"].enqueue_async()
        await until(lambda: job.status == "running", PROMPT)
        await until(lambda: rows(app, BEAT, id=worker.identity.id)[0][0] < 2_000_000, PROMPT)
        await worker.stop(timeout=0)

    beside_a_worker(app, main)


def test_whoever_was_taken_for_dead_while_it_rested_is_back_for_the_next_job(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, consumer = apart
    soon_calm(monkeypatch)

    async def main(worker: Worker) -> None:
        await at_rest(worker)
        client.database.in_transaction(lambda tx: tx.run("DELETE FROM {processes}"))
        worker.heartbeat.last_beat -= 25  # so long ago is the last sign of life of one who is taken for dead
        job = await client.tasks["note"].enqueue_async(4)
        assert await job.result_async(PROMPT) == 8

    beside_a_worker(consumer, main)


def test_whoever_does_not_hear_what_a_glance_says_polls(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, consumer = apart
    soon_calm(monkeypatch)
    monkeypatch.setattr(rest, "ECHO", 0.1)
    monkeypatch.setattr(rest.Rest, "channel", "nobody listens here")
    monkeypatch.setattr(Wakeups, "_may_send_now", lambda *_: False)
    monkeypatch.setattr(Wakeups, "_send_soon", lambda *_: None)

    async def main(worker: Worker) -> None:
        await until(lambda: worker.rest._doubt_until > 0, PROMPT)
        assert not worker.rest.is_on
        job = await client.tasks["note"].enqueue_async(4)
        assert await job.result_async(PROMPT) == 8

    beside_a_worker(consumer, main)


def test_whoever_loses_its_ear_polls_until_it_hears_again(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, consumer = apart
    soon_calm(monkeypatch)
    listening = "FROM pg_stat_activity WHERE application_name = 'penstock-listen' AND query LIKE '%_ready%'"

    async def main(worker: Worker) -> None:
        await at_rest(worker)
        assert rows(client, f"SELECT pg_terminate_backend(pid) {listening} AND datname = current_database()")
        await until(lambda: not worker.rest.is_on, PROMPT)
        await at_rest(worker)
        job = await client.tasks["note"].enqueue_async(4)
        assert await job.result_async(PROMPT) == 8

    beside_a_worker(consumer, main)


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


@pytest.mark.parametrize(
    "settings",
    [{"poll_interval": 1}, {"housekeeping_interval": 5}, {"listen": False}, {"notify": False}],
)
def test_whoever_was_told_how_often_to_look_or_cannot_hear_does_not_rest(
    app_on: AppOn, postgres_url: str, settings: dict[str, Any]
) -> None:
    app = app_on(postgres_url, **settings)

    async def main(worker: Worker) -> bool:
        return worker.rest.ear is None

    assert beside_a_worker(app, main)
