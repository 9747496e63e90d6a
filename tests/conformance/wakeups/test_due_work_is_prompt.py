"""runtime/liveness/housekeeping: work that is due soon calls the housekeeping, and does not wait for its round."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from penstock import Penstock, Retry, Snooze, wait_for
from penstock.database.listeners import hears
from penstock.queue import schedule
from penstock.runtime.liveness.housekeeping import GRAIN, OFTEN, SELDOM, looks_every
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.waiting import until

ROUNDS = {"housekeeping_interval": 3600, "poll_interval": 0.05}
"""A worker that waited for the next round would wait for ever."""
SOON = 40.0
AppOn = Callable[..., Penstock]


def declare(app: Penstock) -> Penstock:
    tries: Counter[str] = Counter()

    @app.task(name="note")
    async def note(number: int) -> int:
        return number * 2

    @app.task(name="stumble", retries=Retry(3, delay=0.1, factor=1, jitter=0))
    async def stumble() -> str:
        tries["stumble"] += 1
        if tries["stumble"] < 3:
            raise ValueError("not yet")
        return "done"

    @app.task(name="doze")
    async def doze() -> str | Snooze:
        tries["doze"] += 1
        return "awake" if tries["doze"] > 1 else Snooze(0.1)

    @app.pipeline(name="asking")
    def asking() -> Any:
        return wait_for("never")

    app.prepare()
    return app


async def calm(worker: Worker) -> None:
    """Its housekeeping has looked, and rests."""
    await until(lambda: worker.housekeeping._looked_at > 0 and not worker.housekeeping._called.is_set())
    await until(lambda: worker.pump._empty_turns > 0)


def test_delays_retries_and_snoozes_of_a_worker_wait_for_no_round(make_app: AppOn) -> None:
    app = declare(make_app(**ROUNDS))

    async def main(worker: Worker) -> None:
        await calm(worker)
        assert await (await app.tasks["note"].options(delay=0.1).enqueue_async(4)).result_async(SOON) == 8
        assert await (await app.tasks["stumble"].enqueue_async()).result_async(SOON) == "done"
        assert await (await app.tasks["doze"].enqueue_async()).result_async(SOON) == "awake"

    beside_a_worker(app, main)


def test_what_another_process_leaves_is_looked_after_at_once(app_on: AppOn, postgres_url: str) -> None:
    client, consumer = (declare(app_on(postgres_url, **ROUNDS)) for _ in range(2))

    async def main(worker: Worker) -> None:
        await calm(worker)
        job = await client.tasks["note"].options(delay=0.1).enqueue_async(4)
        assert await job.result_async(SOON) == 8
        run = await client.pipelines["asking"].trigger_async()
        await until(lambda: bool(run.steps()))
        await run.cancel_async()
        await until(lambda: run.status == "cancelled", SOON)

    beside_a_worker(consumer, main)


def test_what_a_callers_transaction_leaves_is_looked_after_at_once(app_on: AppOn, postgres_url: str) -> None:
    client, consumer = (declare(app_on(postgres_url, **ROUNDS)) for _ in range(2))
    engine = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"))

    async def main(worker: Worker) -> None:
        await calm(worker)
        for number in range(3):  # not only the first of those that come in quick succession
            with Session(engine) as session:
                job = client.tasks["note"].options(connection=session, delay=0.05).enqueue(number)
                session.commit()
        assert await job.result_async(SOON) == 4
        with Session(engine) as session:
            run = client.pipelines["asking"].options(connection=session, delay=0.05).trigger()
            session.commit()
        await until(lambda: bool(run.steps()), SOON)

    beside_a_worker(consumer, main)
    engine.dispose()


def test_those_who_call_all_the_time_are_answered_together(
    make_app: AppOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = declare(make_app(**ROUNDS))
    looks: list[float] = []
    look = schedule.look

    def counted(tx: Any, *left: Any) -> Any:
        looks.append(time.monotonic())
        return look(tx, *left)

    async def main(worker: Worker) -> None:
        await calm(worker)
        monkeypatch.setattr(schedule, "look", counted)
        for number in range(100):
            await app.tasks["note"].options(delay=5).enqueue_async(number)
        await until(lambda: bool(looks))

    beside_a_worker(app, main)
    assert 1 <= len(looks) <= (looks[-1] - looks[0]) / GRAIN + 2


def test_what_is_due_much_later_calls_no_worker(make_app: AppOn, monkeypatch: pytest.MonkeyPatch) -> None:
    app = declare(make_app(**ROUNDS))
    called: list[object] = []
    monkeypatch.setattr(app.database, "call_housekeeping", called.append)
    app.tasks["note"].options(delay=3600).enqueue(1)
    assert called == []
    app.tasks["note"].options(delay=3).enqueue(1)
    assert len(called) == 1


def test_rounds_are_rarer_where_one_is_called(make_app: AppOn) -> None:
    app, deaf, mute = make_app(), make_app(listen=False), make_app(notify=False)
    assert looks_every(app.database, None) == (SELDOM if hears(app.database) else OFTEN)
    assert [looks_every(other.database, None) for other in (deaf, mute)] == [OFTEN, OFTEN]
    assert looks_every(app.database, 0.25) == 0.25
