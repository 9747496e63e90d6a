"""queue/enqueue: a second enqueue with the same key gets the first job, however close the race."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any

import pytest

from penstock import Penstock
from penstock.queue.enqueue import enqueue
from penstock.queue.jobs import NewJob
from penstock.testing import crash_at, drain, travel
from penstock.values.ids import new_id
from tests.conformance.faults import disconnected, failing_at
from tests.conformance.rows import count, counts


def test_the_second_enqueue_returns_the_first_job(app: Penstock) -> None:
    @app.task
    def charge(order: int) -> int:
        return order

    first = charge.options(key="order:1").enqueue(1)
    second = charge.options(key="order:1").enqueue(2)
    assert second == first
    assert drain(app) == 1
    assert second.result(timeout=0) == 1
    assert charge.options(key="order:1").enqueue(3) == first, "a finished job still owns its key"
    assert charge.options(key="order:2").enqueue(3) != first
    assert drain(app) == 1


def test_a_key_without_its_job_is_taken_over(app: Penstock) -> None:
    """A caller committed their transaction although the enqueue in it had failed: the key was taken for good."""

    @app.task
    def charge(order: int) -> int:
        return order

    @app.pipeline
    def deliver(order: int) -> object:
        return charge(order)

    app.prepare()
    lost = {"job_key": "1", "task": charge.name, "job_id": new_id()}
    app.database.in_transaction(lambda tx: tx.insert("job_keys", [lost]))
    runs = [{"run_key": key, "pipeline": deliver.name, "run_id": new_id()} for key in ("1", "2")]
    app.database.in_transaction(lambda tx: tx.insert("run_keys", runs))
    job = charge.options(key="1").enqueue(5)
    assert charge.options(key="1").enqueue(6) == job
    run = deliver.options(key="1").trigger(7)
    many = deliver.trigger_many([(2,), (3,), (2,)], keys=["2", "3", "2"])
    assert deliver.options(key="1").trigger(8) == run
    drain(app)
    assert (job.result(timeout=0), run.result(timeout=0)) == (5, 7)
    assert [each.result(timeout=0) for each in many] == [2, 3, 2]


def test_keys_are_exact(app: Penstock) -> None:
    @app.task
    def charge() -> None: ...

    keys = ["order", "Order", "ORDER", "órder", "order ", "x" * 255]
    assert len({charge.options(key=key).enqueue().id for key in keys}) == len(keys)


def test_each_task_has_keys_of_its_own(app: Penstock) -> None:
    @app.task
    def charge() -> None: ...

    @app.task
    def refund() -> None: ...

    assert charge.options(key="1").enqueue() != refund.options(key="1").enqueue()


def test_a_delayed_job_owns_its_key_too(app: Penstock) -> None:
    @app.task
    def charge() -> None: ...

    first = charge.options(key="1", delay=60).enqueue()
    assert charge.options(key="1").enqueue() == first
    assert drain(app) == 0
    with travel(app, 60):
        assert drain(app) == 1


def test_fifty_threads_make_one_job(make_app: Callable[..., Penstock]) -> None:
    app = make_app(pool_size=10)

    @app.task
    def charge() -> None: ...

    app.prepare()
    barrier = Barrier(50)

    def race(_: int) -> str:
        barrier.wait()
        return charge.options(key="order:1").enqueue().id

    with ThreadPoolExecutor(50) as threads:
        ids = set(threads.map(race, range(50)))
    assert len(ids) == 1
    assert counts(app)["jobs"] == 1
    assert drain(app) == 1


def _overlap(app: Penstock, commits: bool) -> tuple[list[str], list[str]]:
    """Two transactions with one key: the second begins while the first is open, and can only wait for it."""
    first, second = (NewJob(new_id(), "charge", "default", 0, "{}", key="order:1") for _ in range(2))
    app.prepare()
    begun = Event()

    def other() -> list[str]:
        begun.set()
        return app.database.in_transaction(enqueue, [second])

    with ThreadPoolExecutor(1) as threads:
        try:
            with app.database.transaction() as tx:
                written = enqueue(tx, [first])
                later = threads.submit(other)
                begun.wait()
                if not commits:
                    raise Undone
        except Undone:
            pass
        return written, later.result(30)


class Undone(Exception):
    pass


def test_of_two_overlapping_transactions_the_first_to_commit_owns_the_key(app: Penstock) -> None:
    first, second = _overlap(app, commits=True)
    assert second == first
    assert counts(app)["jobs"] == 1


def test_a_rolled_back_transaction_owns_nothing(app: Penstock) -> None:
    first, second = _overlap(app, commits=False)
    assert second != first
    assert counts(app)["jobs"] == 1
    assert app.job(second[0]).status == "available"


def test_a_producer_that_died_before_its_commit_left_nothing(app: Penstock) -> None:
    @app.task
    def charge() -> None: ...

    app.prepare()
    with crash_at("enqueue.commit") as crash:
        charge.options(key="1").enqueue()
    assert crash.crashed
    assert (count(app, "jobs"), count(app, "job_keys")) == (0, 0)
    with crash_at("enqueue.committed") as crash:
        charge.options(key="1").enqueue()
    assert crash.crashed
    assert charge.options(key="1").enqueue().status == "available"
    assert drain(app) == 1


@pytest.mark.parametrize("options", [{}, {"key": "a"}, {"delay": 5}, {"key": "a", "delay": 5}])
def test_an_answer_lost_after_the_commit_makes_no_second_job(app: Penstock, options: dict[str, Any]) -> None:
    @app.task
    def charge() -> None: ...

    app.prepare()
    with failing_at("enqueue.committed", disconnected(app)):
        job = charge.options(**options).enqueue()
    with travel(app, 10):
        assert drain(app) == 1
    assert job.status == "succeeded"
    assert (counts(app)["jobs"], counts(app)["executions"]) == (1, 1)


def test_an_answer_lost_after_the_commit_of_many_makes_no_others(app: Penstock) -> None:
    @app.task
    def charge(order: int) -> None: ...

    app.prepare()
    with failing_at("enqueue.committed", disconnected(app)):
        jobs = charge.enqueue_many([(n,) for n in range(10)])
    assert drain(app) == 10
    assert {job.status for job in jobs} == {"succeeded"}
