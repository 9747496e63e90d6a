"""runtime/liveness/limit_keeper: after a deploy that changes a limit, waiting jobs follow the new one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Concurrency, Penstock, Rate
from penstock.database.transaction import Transaction
from penstock.queue.limits import waiting_line
from penstock.testing import drain
from tests.conformance.concurrent_workers import parked
from tests.conformance.rows import rows
from tests.waiting import until

MakeApp = Callable[..., Penstock]
OLD = [Rate(1, per=100_000)]


def deploy(app: Penstock, limits: list[Any]) -> tuple[Any, list[int]]:
    ran: list[int] = []

    @app.task(name="f", limits=limits)
    def f(number: int) -> None:
        ran.append(number)

    return f, ran


CHANGES = [
    ([], 4),
    ([Rate(2, per=1)], 2),
    ([Rate(2, per=100_000, name="other")], 2),
    ([Rate(3, per=100_000)], 2),
    ([Concurrency(1)], 4),
    ([Rate(1, per=100_000, key="number")], 4),
]


@pytest.mark.parametrize(("limits", "more"), CHANGES, ids=["none", "per", "name", "n", "kind", "key"])
def test_those_who_wait_go_by_the_new_limit(make_app: MakeApp, limits: list[Any], more: int) -> None:
    old, ran = deploy(make_app(), OLD)
    old.enqueue_many([(number,) for number in range(5)])
    assert drain(old.host) == len(ran) == 1
    app = make_app()
    _, ran = deploy(app, limits)
    assert drain(app) == more
    assert ran == list(range(1, more + 1)), "in the order in which they waited"
    assert {key for key, _ in parked(app)} <= {"rate/1s of f", "rate/100000s other", "rate/100000s of f"}


def test_a_worker_frees_them_in_its_first_round(make_app: MakeApp) -> None:
    old, _ = deploy(make_app(), OLD)
    jobs = old.enqueue_many([(number,) for number in range(4)])
    drain(old.host)
    app = make_app()
    deploy(app, [])

    async def work() -> None:
        async with app.worker():
            await until(lambda: all(str(job.status) == "succeeded" for job in jobs))

    asyncio.run(work())


@pytest.mark.one_database
def test_jobs_that_an_old_worker_parks_later_are_freed_soon(make_app: MakeApp) -> None:
    """In a rolling deploy the new worker has made its first round, and the old one parks more."""
    old, _ = deploy(make_app(), OLD)
    app = make_app()
    deploy(app, [])

    async def work() -> None:
        async with app.worker(queues="elsewhere"):
            assert await asyncio.to_thread(park, 2) == 1
            await until(lambda: not parked(app))
            assert await asyncio.to_thread(park, 3) == 0, "the old worker lets none of them through"
            await until(lambda: not parked(app), 30)

    def park(number: int) -> int:
        old.enqueue_many([(each,) for each in range(number)])
        return drain(old.host)

    asyncio.run(work())


def test_a_process_that_does_not_know_the_task_leaves_its_jobs_alone(make_app: MakeApp) -> None:
    old, _ = deploy(make_app(), OLD)
    old.enqueue_many([(number,) for number in range(3)])
    drain(old.host)
    before = parked(old.host)
    stranger = make_app()
    stranger.task(name="other")(lambda: None).enqueue()
    assert drain(stranger) == 1
    assert parked(old.host) == before
    assert len(before) == 2


def test_jobs_of_another_task_go_on_waiting_for_a_limit_that_is_shared(make_app: MakeApp) -> None:
    def shared(app: Penstock, both: bool) -> tuple[Any, Any]:
        one = app.task(name="one", limits=[Rate(1, per=1000, name="api")])(lambda: None)
        return one, app.task(name="two", limits=[Rate(1, per=1000, name="api")] if both else [])(lambda: None)

    one, two = shared(make_app(), True)
    one.enqueue_many([()] * 3)
    two.enqueue_many([()] * 3)
    assert drain(one.host) == 1
    app = make_app()
    shared(app, False)
    assert drain(app) == 3, "those of the task that has no limit any more"
    assert rows(app, "SELECT DISTINCT task FROM {parked}") == [("one",)]


def test_fewer_are_let_through_only_by_a_claim(make_app: MakeApp) -> None:
    """During a deploy, old and new processes would take it in turns otherwise."""
    old, _ = deploy(make_app(), [Rate(2, per=1000)])
    old.enqueue_many([(number,) for number in range(4)])
    drain(old.host)
    app = make_app()
    deploy(app, [Rate(1, per=1000)])
    drain(app)
    assert rows(app, "SELECT most FROM {limits}") == [(2,)]


def test_many_are_freed_in_portions_and_cancelled_ones_not_at_all(
    make_app: MakeApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_line, "MOST_EXAMINED", 3)
    old, _ = deploy(make_app(), OLD)
    jobs = old.enqueue_many([(number,) for number in range(9)])
    drain(old.host)
    app = make_app()

    def cancelled_by_hand(tx: Transaction) -> None:
        tx.run("UPDATE {job_states} SET status = 'cancelled' WHERE job_id = :id", id=jobs[4].id)

    app.database.in_transaction(cancelled_by_hand)
    _, ran = deploy(app, [])
    assert drain(app) == 7
    assert sorted(ran) == [1, 2, 3, 5, 6, 7, 8]
