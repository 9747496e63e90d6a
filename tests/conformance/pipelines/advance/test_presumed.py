"""queue/settle, pipelines/advance/run_modes: a settle presumes that nothing came in between. What did come in
between is found, and counts.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import Penstock
from penstock.database.postgres.dialect import Postgres
from penstock.database.transaction import Transaction
from penstock.pipelines.run import Run
from penstock.runtime.worker import Worker
from penstock.telemetry.events import ClaimLost
from penstock.testing import drain
from tests.conformance.embedded import beside_a_worker
from tests.conformance.faults import disconnected, failing_at
from tests.conformance.rows import count, rows
from tests.waiting import until

AWAY = "UPDATE {job_states} SET token = 1 WHERE job_id = :id"


@contextmanager
def presumptions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Whether each settle of successes presumed something; only PostgreSQL does."""
    seen: list[bool] = []
    succeed = Postgres.succeed

    def spy(self: Postgres, tx: Transaction, *args: Any) -> Any:
        seen.append(tx.optimistic)
        connections.add(tx.driver)
        return succeed(self, tx, *args)

    connections: set[Any] = set()
    with monkeypatch.context() as patch:
        patch.setattr(Postgres, "succeed", spy)
        yield seen
    assert len(connections) <= 1, "a wrong presumption costs no connection"


class Two:
    """A pipeline of two steps; something happens while the first is running."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.ran: list[str] = []
        self.started, self.go_on = asyncio.Event(), asyncio.Event()

        @app.task
        async def first(number: int) -> int:
            self.ran.append("first")
            self.started.set()
            await self.go_on.wait()
            return number + 1

        @app.task
        async def second(number: int) -> int:
            self.ran.append("second")
            return number * 10

        self.pipeline = app.flow("two").start(first).chain(second)
        self._run_once()

    def _run_once(self) -> None:
        """From then on the second step follows without a plan (see `fast_path`)."""
        self.go_on.set()
        known = self.pipeline.trigger(1)
        drain(self.app)
        assert known.result(0) == 20
        for table in ("executions", "job_states", "jobs", "runs"):
            _execute(self.app, f"DELETE FROM {{{table}}}")
        self.ran.clear()
        self.started.clear()
        self.go_on.clear()

    async def meanwhile(self, happens: Callable[[Run], object]) -> Run:
        run: Run = await self.pipeline.trigger_async(1)
        await self.started.wait()
        await asyncio.to_thread(happens, run)
        self.go_on.set()
        return run


@pytest.mark.standard_profile
def test_it_is_presumed_as_a_rule(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(app)

    async def live(_worker: Worker) -> None:
        run = await two.meanwhile(lambda _: None)
        assert await run.result_async(timeout=30) == 20

    with presumptions(monkeypatch) as seen:
        beside_a_worker(app, live)
    assert seen == ([True, True] if app.database.dialect.name == "postgresql" else [])


def test_paused_meanwhile(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(app)

    async def live(_worker: Worker) -> None:
        run = await two.meanwhile(lambda run: run.pause())
        await until(lambda: run.steps()[0].status == "succeeded")
        assert two.ran == ["first"]
        await asyncio.to_thread(run.resume)
        assert await run.result_async(timeout=30) == 20

    with presumptions(monkeypatch) as seen:
        beside_a_worker(app, live)
    assert two.ran == ["first", "second"]
    assert count(app, "executions") == 2
    if seen:
        assert seen[:2] == [True, False], "wrongly presumed, and done once more without"


def test_a_step_that_was_claimed_and_could_not_be_read_is_given_back(app: Penstock) -> None:
    """A claim that stands alone is committed before its step's inputs are there: the connection may be lost between."""
    two = Two(app)

    async def live(_worker: Worker) -> None:
        run = await two.meanwhile(lambda run: run.pause())
        await until(lambda: run.steps()[0].status == "succeeded")
        with failing_at("hydrate.1", disconnected(app)):
            await asyncio.to_thread(run.resume)
            assert await run.result_async(timeout=30) == 20

    beside_a_worker(app, live)
    assert two.ran == ["first", "second"]
    assert rows(app, "SELECT DISTINCT retry_count, crash_count FROM {job_states}") == [(0, 0)]
    assert count(app, "claims") == 0


def test_cancelled_meanwhile(app: Penstock) -> None:
    two = Two(app)

    async def live(_worker: Worker) -> None:
        run = await two.meanwhile(lambda run: run.cancel())
        await until(lambda: run.status == "cancelled")

    beside_a_worker(app, live)
    assert two.ran == ["first"]


def test_a_lost_claim_is_refused_and_those_beside_it_count(app: Penstock) -> None:
    two = Two(app)
    lost: list[ClaimLost] = []
    app.events.on(ClaimLost, lost.append)

    @app.task
    async def beside() -> str:
        await two.go_on.wait()
        return "done"

    async def live(_worker: Worker) -> None:
        other = await beside.enqueue_async()
        run = await two.meanwhile(lambda run: _execute(app, AWAY, id=run.steps()[0].id))
        assert await other.result_async(timeout=30) == "done"
        await until(lambda: bool(lost))
        (step,) = await run.steps_async()
        assert (step.status, step.attempts()) == ("running", [])

    beside_a_worker(app, live)
    assert two.ran == ["first"]
    assert count(app, "executions") == 1


def test_who_is_taken_for_dead_holds_nothing_more(make_app: Callable[..., Penstock]) -> None:
    """Its claim still stands, so what it has done counts; but the next step goes through the queue."""
    app = make_app(heartbeat_interval=600, reap_after=3600)
    two = Two(app)
    receipts: list[int] = []

    async def live(worker: Worker) -> None:
        # Its first beat would find its work lost, too, and its first round at what dead processes hold would take it.
        await until(lambda: worker.heartbeat.last_beat > 0 and worker.housekeeping.reaper.look_at > 0)
        run = await two.meanwhile(lambda _: _execute(app, "DELETE FROM {processes}"))
        await until(lambda: run.steps()[0].status == "succeeded")
        worker.heartbeat.interval = 0.05  # and not before: it would find its work lost, and not finish it
        assert await run.result_async(timeout=30) == 20
        receipts.append(len(rows(app, "SELECT DISTINCT process_id FROM {executions}")))

    beside_a_worker(app, live)
    assert two.ran == ["first", "second"]
    assert receipts == [2], "the second step was run under the worker's new name"


def _execute(app: Penstock, template: str, **parameters: object) -> None:
    app.database.in_transaction(lambda tx: tx.run(template, **parameters))
