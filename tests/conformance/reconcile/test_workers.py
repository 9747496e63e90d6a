"""runtime/reconcilers/reconciler_worker: Reconcilers in a real worker: hints, handlers of both kinds, time limits,
lost leases, late declarations.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest
from sqlalchemy import insert

from penstock import Penstock
from penstock.reconcile.events import LeaseLost, RowSettled
from penstock.reconcile.wakeup_subjects import table_changed
from penstock.runtime.reconcilers.row_pump import FIRST_DELAY, LONGEST_DELAY, RESTS_AFTER, RowPump
from penstock.runtime.worker import Worker
from penstock.telemetry import fault_points
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.embedded import beside_a_worker
from tests.conformance.reconcile.apply.test_apply import heard
from tests.conformance.reconcile.cloud import Cloud, Volume, declare
from tests.waiting import until


def add(cloud: Cloud, *ids: int, **values: Any) -> None:
    with cloud.engine.begin() as connection:
        connection.execute(insert(Volume), [{"id": id, **values} for id in ids])


def active(cloud: Cloud, count: int) -> Callable[[], bool]:
    return lambda: [row.status for row in cloud.all(Volume)] == ["active"] * count


def test_both_kinds_of_handlers(app: Penstock, cloud: Cloud) -> None:
    threads: set[str] = set()

    async def on_the_loop(item: Any) -> dict[str, Any]:
        await asyncio.sleep(0)
        threads.add(threading.current_thread().name)
        return {"status": "threaded"}

    def in_a_thread(item: Any) -> dict[str, Any]:
        threads.add(threading.current_thread().name)
        return {"status": "active"}

    declare(app, Volume, on_the_loop, where=Volume.status == "submitted", workers=5)
    declare(app, Volume, in_a_thread, where=Volume.status == "threaded", workers=5)
    cloud.volumes(30)

    async def live(_: Worker) -> None:
        await until(active(cloud, 30))

    beside_a_worker(app, live, role="reconciler")
    assert any(name.startswith("penstock-handler") for name in threads)
    assert "MainThread" in threads
    assert cloud.locked(Volume) == []


def test_handlers_that_give_something_to_wait_for(app: Penstock, cloud: Cloud) -> None:
    """An object that is called, a plain function around an async one, and one that is wrapped and is not async."""

    async def become(status: str) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"status": status}

    class Called:
        async def __call__(self, item: Any) -> dict[str, Any]:
            return await become("called")

    @wraps(become)
    def wrapped(item: Any) -> dict[str, Any]:
        return {"status": "active"}

    declare(app, Volume, Called(), where=Volume.status == "submitted", name="one")
    declare(app, Volume, lambda _: become("given"), where=Volume.status == "called", name="two")
    declare(app, Volume, wrapped, where=Volume.status == "given", name="three")
    cloud.volumes(3)

    async def live(_: Worker) -> None:
        await until(active(cloud, 3))

    beside_a_worker(app, live, role="reconciler")


def test_a_hint_is_heard_at_once_in_the_same_process(app: Penstock, cloud: Cloud) -> None:
    async def provision(item: Any) -> dict[str, Any]:
        return {"status": "active"}

    declare(app, Volume, provision, where=Volume.status == "submitted", every=3600)

    async def live(worker: Worker) -> None:
        pump = worker.rows.runners["provision"].pump
        for number in range(1, 6):
            await until(lambda: pump._empty_turns > 3)
            add(cloud, number)
            pump._empty_turns = 20
            began = time.monotonic()
            await app.hint_async(Volume)
            await until(active(cloud, number))
            assert time.monotonic() - began < 10

    beside_a_worker(app, live, role="reconciler")


def test_a_hint_in_a_persons_name_is_in_the_audit_trail(app: Penstock, cloud: Cloud) -> None:
    cloud.volumes(2)
    declare(app, Volume)
    app.hint(Volume, 1)
    app.hint(Volume)
    assert app.audit() == [], "programs give hints all the time"
    with app.acting(by="ann", why="ticket 12"):
        app.hint(Volume, 1, 2)
        asyncio.run(app.hint_async(Volume))
    table = Volume.__tablename__
    assert [(act.act, act.kind, act.by, act.detail) for act in app.audit()] == [
        ("hint", "reconciler", "ann", {"table": table}),
        ("hint", "reconciler", "ann", {"table": table, "rows": ["1", "2"]}),
    ]


def test_a_hint_that_comes_while_a_fetch_runs_is_not_lost(app: Penstock, cloud: Cloud) -> None:
    async def provision(item: Any) -> dict[str, Any]:
        return {"status": "active"}

    declare(app, Volume, provision, where=Volume.status == "submitted", every=3600)
    armed = threading.Event()

    def strike(point: str) -> None:
        """The fetch has seen its rows, and is not over: a new one comes, and a hint."""
        if point == "claim_rows.committed" and armed.is_set():
            armed.clear()
            add(cloud, 1)
            app.wakeups.relay(table_changed("volumes"))

    async def live(worker: Worker) -> None:
        pump = worker.rows.runners["provision"].pump
        await until(lambda: pump._empty_turns > 8)
        pump.delay = lambda: 3600.0  # type: ignore[method-assign]  # from now on only a hint helps
        armed.set()
        app.wakeups.relay(table_changed("volumes"))
        await until(active(cloud, 1))

    with fault_points.watching(strike):
        beside_a_worker(app, live, role="reconciler")


def test_a_stream_of_hints_is_not_a_stream_of_fetches(app: Penstock, cloud: Cloud) -> None:
    """All hints that come during a fetch are answered by one more."""
    declare(app, Volume, where=Volume.status == "submitted")
    fetches: list[str] = []
    begun, go_on = threading.Event(), threading.Event()

    def hold(point: str) -> None:
        if point == "claim_rows.1":
            fetches.append(point)
            begun.set()
            go_on.wait(60)

    def hint() -> None:
        app.wakeups.relay(table_changed("volumes"))

    async def live(worker: Worker) -> None:
        pump = worker.rows.runners["idle"].pump
        await until(lambda: pump._empty_turns > RESTS_AFTER)
        pump.delay = lambda: 3600.0  # type: ignore[method-assign]  # from now on only hints count
        with fault_points.watching(hold):
            hint()
            await until(begun.is_set)
            for _ in range(1000):
                hint()
            go_on.set()
            await until(lambda: len(fetches) == 2)
            await until(lambda: not pump._one_at_a_time.locked())
            hint()
            await until(lambda: len(fetches) >= 3)
        assert len(fetches) == 3

    beside_a_worker(app, live, role="reconciler")


def test_an_idle_pump_waits_longer_and_longer_but_not_past_what_comes_due(
    app: Penstock, cloud: Cloud, hand: Callable[..., ManualReconciler]
) -> None:
    cloud.volumes(1)
    mine = hand(declare(app, Volume, every=0.5))
    pump = RowPump(
        app.database,
        mine.source,
        lambda: 1,
        lambda _: None,
        mine.waker,
        app.events,
        100,
        (FIRST_DELAY, LONGEST_DELAY),
    )
    pump.rows = mine.source
    delays = []
    for pump._empty_turns in range(10):
        delays.append(pump.delay())
    assert delays[0] < 0.1
    assert delays[-1] > 1
    mine.visit()
    assert pump.delay() < 0.6, "the row that was visited here is due again then"


@pytest.mark.parametrize("kind", ["loop", "thread"])
def test_a_handler_that_takes_too_long_is_an_error(app: Penstock, cloud: Cloud, kind: str) -> None:
    settled = heard(app, RowSettled)
    forever = threading.Event()

    async def on_the_loop(item: Any) -> None:
        await asyncio.Event().wait()

    def in_a_thread(item: Any) -> None:
        forever.wait(3600)

    declare(app, Volume, on_the_loop if kind == "loop" else in_a_thread, timeout=0.2)
    cloud.volumes(1)

    async def live(_: Worker) -> None:
        await until(lambda: bool(settled))
        forever.set()

    beside_a_worker(app, live, role="reconciler")
    row = cloud.get(Volume, 1)
    assert (settled[0].outcome, row.process_attempts, row.lock_token) == ("timed_out", 1, None)


def test_a_handler_whose_lease_is_lost_is_told_and_ended(app: Penstock, cloud: Cloud) -> None:
    lost = heard(app, LeaseLost)
    seen: list[Any] = []

    async def hang(item: Any) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(("cancelled", item.lease_lost))
            raise

    async def regret(item: Any, values: Any) -> None:
        seen.append(("regret", item.id, values))

    declare(app, Volume, hang, lease=1, where=Volume.status == "submitted", on_lost=regret)
    cloud.volumes(1)

    async def live(worker: Worker) -> None:
        crew = worker.rows.runners["hang"].dispatcher
        await until(lambda: len(crew.active) == 1)
        cloud.set(Volume, 1, lock_token=7, status="theirs")
        await until(lambda: len(seen) == 2)

    beside_a_worker(app, live, role="reconciler")
    assert seen == [("cancelled", True), ("regret", 1, None)]
    assert len(lost) == 1
    assert (cloud.get(Volume, 1).lock_token, cloud.get(Volume, 1).status) == (7, "theirs")


def test_an_undoing_that_fails_is_said(app: Penstock, cloud: Cloud, caplog: pytest.LogCaptureFixture) -> None:
    async def hang(item: Any) -> None:
        await asyncio.Event().wait()

    def regret(item: Any, values: Any) -> None:
        raise OSError("nobody answers")

    declare(app, Volume, hang, lease=1, where=Volume.status == "submitted", on_lost=regret)
    cloud.volumes(1)

    async def live(worker: Worker) -> None:
        crew = worker.rows.runners["hang"].dispatcher
        await until(lambda: len(crew.active) == 1)
        cloud.set(Volume, 1, lock_token=7, status="theirs")
        await until(lambda: "<volumes 1 in hang> was lost, and its on_lost has failed" in caplog.text)

    beside_a_worker(app, live, role="reconciler")
    assert "nobody answers" in caplog.text


def test_reconcilers_declared_later_and_only_some_of_them(app: Penstock, cloud: Cloud) -> None:
    async def first(item: Any) -> dict[str, Any]:
        return {"status": "active"}

    async def never(item: Any) -> dict[str, Any]:
        return {"status": "wrong"}

    declare(app, Volume, never, where=Volume.status == "submitted")
    cloud.volumes(3)

    async def live(worker: Worker) -> None:
        declare(app, Volume, first, where=Volume.status == "submitted")
        await until(active(cloud, 3))
        assert list(worker.rows.runners) == ["first"]

    beside_a_worker(app, live, role="reconciler", reconcilers=["first"])


def test_a_disabled_one_takes_nothing_until_it_is_enabled(app: Penstock, cloud: Cloud) -> None:
    async def provision(item: Any) -> dict[str, Any]:
        return {"status": "active"}

    reconciler = declare(app, Volume, provision, where=Volume.status == "submitted")
    reconciler.disable()
    cloud.volumes(1)

    async def live(worker: Worker) -> None:
        pump = worker.rows.runners["provision"].pump
        await until(lambda: pump.alive)
        app.hint(Volume)
        assert cloud.get(Volume, 1).status == "submitted"
        reconciler.enable()
        app.hint(Volume)
        await until(active(cloud, 1))

    beside_a_worker(app, live, role="reconciler")


def test_no_connection_is_held_while_handlers_work(app: Penstock, cloud: Cloud) -> None:
    inside: list[int] = []
    go_on = asyncio.Event()

    async def work(item: Any) -> None:
        inside.append(item.id)
        await go_on.wait()

    declare(app, Volume, work, workers=20, every=3600)
    cloud.volumes(20)

    async def live(worker: Worker) -> None:
        await until(lambda: len(inside) == 20)
        pool: Any = app.database.engine.pool
        await until(lambda: pool.checkedout() <= 4)  # heartbeat, housekeeping, leases: by process, not by row
        go_on.set()
        await until(lambda: worker.rows.runners["work"].at_rest)

    beside_a_worker(app, live, role="reconciler")


def test_other_roles_leave_rows_alone(app: Penstock, cloud: Cloud) -> None:
    declare(app, Volume)

    async def live(worker: Worker) -> None:
        assert worker.rows.runners == {}

    beside_a_worker(app, live, role="worker")
