"""runtime/pump/idle: an idle worker polls nothing and stays registered; one whose listener is not proven polls."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock
from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.queue import claim, processes
from penstock.queue.wakeups import Wakeups
from penstock.runtime.liveness import heartbeat
from penstock.runtime.pump import idle
from penstock.runtime.worker import Worker
from penstock.values.ids import new_id, new_token
from tests.conformance.embedded import beside_a_worker
from tests.conformance.idle_workers import PROMPT, asked, at_rest, declare, soon_calm
from tests.conformance.rows import rows
from tests.waiting import until

AppOn = Callable[..., Penstock]
Apart = tuple[Penstock, Penstock]
BEAT = "SELECT {now} - heartbeat_at FROM {processes} WHERE id = :id"
AGE = "UPDATE {processes} SET heartbeat_at = heartbeat_at - 25000000"


@pytest.fixture
def apart(app_on: AppOn, postgres_url: str) -> Apart:
    """Who gives work, and who does it."""
    return declare(app_on(postgres_url)), declare(app_on(postgres_url))


@pytest.mark.parametrize("pooled", [False, True])
def test_an_idle_worker_asks_nothing(
    app_on: AppOn, postgres_url: str, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = {"pooler": "transaction", "listen_url": postgres_url} if pooled else {}
    app = declare(app_on(postgres_url, **behind))
    soon_calm(monkeypatch)

    async def main(worker: Worker) -> None:
        await at_rest(worker)
        times = [time.monotonic()]
        asked(app, times, monkeypatch)
        # A worker that does not rest asks within a second. Others who move in beside it may be a reason to ask once.
        await until(lambda: time.monotonic() - times[-1] > 1.2, 2 * PROMPT)

    beside_a_worker(app, main)


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
    app = declare(app_on(postgres_url, heartbeat_interval=10), held=60)
    soon_calm(monkeypatch)

    async def main(worker: Worker) -> None:
        await at_rest(worker)
        # Of itself the heartbeat would look again when it is time for the next.
        monkeypatch.setattr(heartbeat, "LOOK_INTERVAL", 3600)
        await asyncio.sleep(0.1)
        app.database.in_transaction(lambda tx: tx.run(AGE))
        worker.heartbeat.last_beat -= 25
        job = await app.tasks["hold"].enqueue_async()
        await until(lambda: job.status == "running", PROMPT)
        await until(lambda: rows(app, BEAT, id=worker.identity.id)[0][0] < 2_000_000, PROMPT)
        await worker.stop(timeout=0)

    beside_a_worker(app, main)


def test_a_worker_taken_for_dead_while_idle_is_back_for_the_next_job(
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


def test_a_worker_that_does_not_hear_what_a_glance_says_polls(
    apart: Apart, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, consumer = apart
    soon_calm(monkeypatch)
    monkeypatch.setattr(idle, "ECHO", 0.5)
    monkeypatch.setattr(idle.IdleMode, "channel", "nobody listens here")
    monkeypatch.setattr(Wakeups, "_may_send_now", lambda *_: False)
    monkeypatch.setattr(Wakeups, "_send_soon", lambda *_: None)

    async def main(worker: Worker) -> None:
        await until(lambda: worker.rest._begun is not None, PROMPT)
        assert not worker.rest.is_on
        await until(lambda: worker.rest._doubt_until > 0, PROMPT)
        assert not worker.rest.is_on
        job = await client.tasks["note"].enqueue_async(4)
        assert await job.result_async(PROMPT) == 8

    beside_a_worker(consumer, main)


def test_a_worker_that_loses_its_ear_polls_until_it_hears_again(
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


@pytest.mark.parametrize(
    "settings",
    [{"poll_interval": 1}, {"housekeeping_interval": 5}, {"listen": False}, {"notify": False}],
)
def test_a_worker_that_was_told_how_often_to_look_or_cannot_hear_does_not_rest(
    app_on: AppOn, postgres_url: str, settings: dict[str, Any]
) -> None:
    app = app_on(postgres_url, **settings)

    async def main(worker: Worker) -> bool:
        return worker.rest.listener is None

    assert beside_a_worker(app, main)
