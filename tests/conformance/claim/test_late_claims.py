"""runtime/liveness/heartbeat: a claim that is committed after its worker gave it up for lost is given back.

What is left in a socket when a process closes it is sent on when the network is back, and the server does what it says.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Set
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import make_url

from penstock import Penstock
from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.queue.claim import claim
from penstock.queue.jobs import tier_of
from penstock.runtime.worker import Worker
from penstock.telemetry import fault_points
from penstock.telemetry.events import TroubleEnded
from penstock.values.ids import new_token
from tests.chaos.proxy import Network, Proxy
from tests.conformance.embedded import beside_a_worker
from tests.conformance.idle_workers import at_rest, soon_calm
from tests.conformance.rows import count
from tests.waiting import until

AppOn = Callable[..., Penstock]
SHORT = {"reap_after": 1, "heartbeat_interval": 0.1}
SOON = 30.0
"""A worker that does not look would not find it in a year."""


@pytest.fixture
def way(postgres_url: str) -> Iterator[Proxy]:
    """The only way to the server that the worker has."""
    port = make_url(postgres_url).port
    assert port is not None
    network = Network()
    proxy = Proxy(network, port)
    yield proxy
    proxy.close()
    network.close()


def test_what_is_held_unknowingly_is_given_back(app_on: AppOn, database_url: str) -> None:
    app = app_on(database_url, **SHORT)
    note = _noting(app)

    async def main(worker: Worker) -> None:
        jobs = [await note.enqueue_async(number) for number in range(3)]
        assert _arrives(app, worker) == 3
        worker.pump.claiming = True
        assert [await job.result_async(SOON) for job in jobs] == [0, 2, 4]
        assert [len(job.attempts()) for job in jobs] == [1, 1, 1]
        await until(lambda: count(app, "claims") == 0)

    _beside_one_who_claims_nothing(app, main)


def test_what_was_cancelled_meanwhile_ends_so_and_never_runs(app_on: AppOn, database_url: str) -> None:
    app, ran = app_on(database_url, **SHORT), list[str]()

    @app.task(name="note")
    async def note(what: object) -> None:
        ran.append(str(what))

    @app.pipeline(name="noting", on_failure="continue")
    def noting() -> Any:
        return note(note("step"))

    async def main(worker: Worker) -> None:
        job, run = await note.enqueue_async("job"), await noting.trigger_async()
        other = await note.enqueue_async("other")
        assert _arrives(app, worker) == 3
        (step,) = [app.job(step.id) for step in run.steps() if step.status == "running"]
        assert await job.cancel_async()
        assert await step.cancel_async()
        worker.pump.claiming = True
        await until(lambda: {job.status, step.status} == {"cancelled"}, SOON)
        await other.result_async(SOON)
        await until(lambda: run.status.terminal, SOON)
        await until(lambda: count(app, "claims") + count(app, "cancellations") == 0, SOON)
        assert (job.attempts(), step.attempts()) == ([], [])

    _beside_one_who_claims_nothing(app, main)
    assert ran == ["other"]


def test_also_by_one_who_rests(app_on: AppOn, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    app, client = app_on(postgres_url, **SHORT), app_on(postgres_url, notify=False)
    _noting(app)
    note = _noting(client)
    soon_calm(monkeypatch, interval=0.5)

    async def main(worker: Worker) -> None:
        await at_rest(worker)
        job = await note.enqueue_async(4)
        assert _arrives(app, worker) == 1
        worker.pump.claiming = True
        assert await job.result_async(SOON) == 8

    _beside_one_who_claims_nothing(app, main)


def test_what_is_known_is_kept_however_long_it_takes(app_on: AppOn, database_url: str) -> None:
    app = app_on(database_url, reap_after=0.2, heartbeat_interval=0.1)
    looked: list[bool] = []

    @app.task
    async def long() -> None:
        """Until it was found among what is held for long, several times."""
        await until(lambda: len(looked) >= 3, SOON)

    async def main(worker: Worker) -> None:
        knows = worker.heartbeat.knows

        def look(tokens: Set[int]) -> bool:
            known = knows(tokens)
            looked.extend([known] * len(tokens))
            return known

        worker.heartbeat.knows = look
        job = await long.enqueue_async()
        await job.result_async(SOON)
        assert all(looked)
        assert len(job.attempts()) == 1

    beside_a_worker(app, main)


def test_what_was_sent_on_a_connection_that_was_given_up_may_take_something_after_that(
    app_on: AppOn, postgres_url: str, way: Proxy
) -> None:
    there = make_url(postgres_url).set(port=way.port).render_as_string(hide_password=False)
    app = app_on(there, **SHORT, statement_timeout=0.5, lock_timeout=0.5, poll_interval=0.1)
    client, goes_on, over = app_on(postgres_url), asyncio.Event(), Counter[str]()
    app.events.on(TroubleEnded, lambda event: over.update([event.loop]))

    async def wait() -> None:
        await goes_on.wait()

    for one in (app, client):
        one.task(name="wait")(wait)
        _noting(one)

    async def main(worker: Worker) -> None:
        first = await client.tasks["note"].enqueue_async(2)
        assert await first.result_async(SOON) == 4  # now it is connected
        with _at_the_next_claim(way.strand):
            await until(lambda: over[worker.pump.name], SOON)
        busy = await client.tasks["wait"].enqueue_async()
        await until(lambda: busy.status == "running", SOON)
        job = await client.tasks["note"].enqueue_async(4)
        way.wash_up()
        await until(lambda: job.status == "running", SOON)
        assert worker.source.holdings.count == 1, "there is no room here, and it is not known"
        goes_on.set()
        assert await job.result_async(SOON) == 8

    beside_a_worker(app, main, concurrency=1)


@contextmanager
def _at_the_next_claim(act: Callable[[], object]) -> Iterator[None]:
    """Act once, when a claim is about to be sent."""
    left = [act]

    def reach(point: str) -> None:
        if point == "claim.1" and left:
            left.pop()()

    with fault_points.watching(reach):
        yield


def _beside_one_who_claims_nothing(app: Penstock, main: Callable[[Worker], Awaitable[None]]) -> None:
    """Of itself: so that the late claim is the first to come."""

    async def held_up(worker: Worker) -> None:
        with worker.pump._one_at_a_time:
            worker.pump.claiming = False
        await main(worker)

    beside_a_worker(app, held_up)


def _arrives(app: Penstock, worker: Worker) -> int:
    """What this worker has sent some time ago."""

    def late(tx: Transaction) -> int:
        lanes = [Lane("default", tier_of(0), 0, 5)]
        return len(claim(tx, lanes, app.task_names, 5, new_token(), worker.identity.id)[0])

    return app.database.in_transaction(late)


def _noting(app: Penstock) -> Any:
    @app.task(name="note")
    async def note(number: int) -> int:
        return number * 2

    return note
