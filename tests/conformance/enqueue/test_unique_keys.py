"""queue/rules/unique_keys: Keys that are unique for a while: until the job is over or has started, for some time, or
the last enqueue wins.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import Concurrency, Penstock
from penstock.errors import ConfigurationError
from penstock.job import Job
from penstock.operate.actions import prune
from penstock.queue.jobs import Claim
from penstock.queue.rules import second_look
from penstock.task import Task
from penstock.testing import drain, travel
from tests.conformance.rows import count

AT_ONCE = 6


@pytest.fixture
def ran() -> list[int]:
    return []


@pytest.fixture
def index(app: Penstock, ran: list[int]) -> Task[Any, Any]:
    @app.task(name="index", retries=0)
    def index(number: int) -> int:
        if number < 0:
            raise ValueError("no")
        ran.append(number)
        return number

    return index


def together(work: Callable[[int], Any], number: int = AT_ONCE) -> list[Any]:
    """Call it with 0, 1, 2, … at the same moment; what each returned."""
    barrier, found = threading.Barrier(number), dict[int, Any]()

    def one(index: int) -> None:
        barrier.wait()
        found[index] = work(index)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[index] for index in range(number)]


def test_while_pending_ends_with_the_job(app: Penstock, index: Task[Any, Any], ran: list[int]) -> None:
    unique = index.options(key="k", unique="while_pending")
    first = unique.enqueue(1)
    assert unique.enqueue(2) == first
    drain(app)
    second = unique.enqueue(3)
    assert second != first
    assert unique.enqueue(4) == second
    assert app.jobs(key="k") == [second]
    second.cancel()
    third = unique.options(key="k").enqueue(-5)
    drain(app)
    fourth = unique.enqueue(6)
    drain(app)
    assert (ran, third.status, fourth.status) == ([1, 6], "failed", "succeeded")
    assert index.options(key="k").enqueue(7) == fourth


def test_while_waiting_ends_with_the_start(app: Penstock) -> None:
    made: list[Job[Any]] = []

    @app.task(name="sync")
    def sync(again: bool) -> None:
        if again:
            made.append(unique.enqueue(False))

    unique = sync.options(key="k", unique="while_waiting")
    first = unique.enqueue(True)
    assert unique.enqueue(True) == first
    drain(app, limit=1)
    assert made[0] != first
    assert unique.enqueue(False) == made[0]
    assert drain(app) == 1


def test_unique_for_a_time_whatever_has_become_of_it(app: Penstock, index: Task[Any, Any]) -> None:
    hourly = index.options(key="k", unique_for=3600)
    first = hourly.enqueue(1)
    drain(app)
    assert hourly.enqueue(2) == first
    with travel(app, 3500):
        assert hourly.enqueue(2) == first
        assert index.options(key="k", unique="while_pending").enqueue(3) != first
    with travel(app, 7200):
        both = index.options(key="k", unique="while_pending", unique_for=60)
        later = hourly.enqueue(4)
        assert later != first
        assert both.enqueue(5) == later
    with travel(app, 11_000):
        assert both.enqueue(6) == later  # still pending
        drain(app)
        assert both.enqueue(7) != later


def test_the_last_arguments_win_and_the_time_is_put_off(
    app: Penstock, index: Task[Any, Any], ran: list[int]
) -> None:
    debounced = index.options(key="k", on_conflict="replace", delay=60)
    first = debounced.enqueue(1)
    with travel(app, 50):
        assert debounced.enqueue(2) == first
        assert count(app, "scheduled") == 1
    with travel(app, 70):
        assert drain(app) == 0
        assert debounced.options(delay=5).enqueue(3) == first
        assert drain(app) == 0
    with travel(app, 76):
        assert drain(app) == 1
        second = debounced.enqueue(4)
        assert second != first
    with travel(app, 140):
        assert drain(app) == 1
    assert (ran, first.result(), second.result(), count(app, "scheduled")) == ([3, 4], 3, 4, 0)


def test_a_job_that_is_ready_is_replaced_too(app: Penstock, index: Task[Any, Any], ran: list[int]) -> None:
    now = index.options(key="k", on_conflict="replace")
    first = now.enqueue(1)
    assert now.enqueue(2) == first
    assert now.enqueue(3) == first
    assert (drain(app), ran, first.refresh().kwargs) == (1, [3], {"number": 3})
    plain = index.options(key="other").enqueue(4)
    assert index.options(key="other", on_conflict="replace").enqueue(5) != plain


def test_a_job_that_waits_for_its_limit_is_replaced(app: Penstock, ran: list[int]) -> None:
    @app.task(name="alone", limits=[Concurrency(1)])
    def alone(number: int) -> None:
        if number == 0:
            waiting = late.enqueue(1)
            drain(app)
            assert late.enqueue(2) == waiting
        ran.append(number)

    late = alone.options(key="k", on_conflict="replace")
    alone.enqueue(0)
    drain(app)
    assert ran == [0, 2]


def test_a_claim_that_was_under_way_gets_the_arguments_of_now(app: Penstock, index: Task[Any, Any]) -> None:
    now = index.options(key="k", on_conflict="replace")
    job = now.enqueue(1)
    old = Claim(job.id, 7, 1, "index", "default", 0, '{"number":1}', now.stored_options, 0, 0)
    now.enqueue(2)
    assert second_look.concerns([old])
    kept, expired = app.database.in_transaction(second_look.look, [old], None, app.follow)
    assert ([claim.payload for claim in kept], expired) == (['{"number":2}'], [])


@pytest.mark.parametrize(
    "unique", [{"unique": "while_pending"}, {"unique_for": 60}, {"on_conflict": "replace"}]
)
def test_many_who_enqueue_at_once_make_one_job(
    app: Penstock, index: Task[Any, Any], unique: dict[str, Any]
) -> None:
    app.prepare()
    for made in range(3):
        jobs = together(lambda number: index.options(key="k", **unique).enqueue(number))
        assert len(set(jobs)) == 1
        assert count(app, "jobs") == 1 + made
        assert drain(app) == 1
        if "unique_for" in unique:
            break


def test_enqueues_against_claims_and_settles(app: Penstock, index: Task[Any, Any], ran: list[int]) -> None:
    """Two producers and a worker at once: no two jobs wait at a time, nothing runs twice, and the last is run."""
    app.prepare()
    stop, last = threading.Event(), 40

    def produce(first: int) -> None:
        for number in range(first, last, 2):
            latest = index.options(key=f"k{first}", on_conflict="replace").enqueue(number)
        latest.result(60)

    def work() -> None:
        while not stop.is_set():
            drain(app)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        together(produce, 2)
    finally:
        stop.set()
        worker.join()
    assert len(ran) == len(set(ran))
    assert {last - 2, last - 1} <= set(ran)
    for first in (0, 1):
        mine = [number for number in ran if number % 2 == first]
        assert mine == sorted(mine)
    assert all(job.status == "succeeded" for job in app.jobs())


def test_while_pending_against_settles(app: Penstock, index: Task[Any, Any], ran: list[int]) -> None:
    """What an enqueue was given was not over when it was called, or is new: so each number has a run after its call."""
    app.prepare()
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            drain(app)

    def produce(_: int) -> list[Job[Any]]:
        return [index.options(key="k", unique="while_pending").enqueue(number) for number in range(25)]

    worker = threading.Thread(target=work)
    worker.start()
    try:
        made = together(produce, 2)
        for job in {job for some in made for job in some}:
            job.result(60)
    finally:
        stop.set()
        worker.join()
    assert count(app, "job_keys") == 1
    assert len(ran) == count(app, "jobs") == len({job for some in made for job in some})


@contextmanager
def begun(app: Penstock) -> Iterator[Any]:
    """A connection of the caller's, in a transaction."""
    with app.database.engine.connect() as connection:
        yield connection


def test_in_the_transaction_of_the_caller(app: Penstock, index: Task[Any, Any], ran: list[int]) -> None:
    debounced = index.options(key="k", on_conflict="replace", delay=60)
    first = debounced.enqueue(1)
    with begun(app) as connection:
        assert debounced.options(connection=connection).enqueue(2) == first
        connection.rollback()
    assert (first.refresh().kwargs, count(app, "scheduled")) == ({"number": 1}, 1)
    with begun(app) as connection:
        assert debounced.options(connection=connection, delay=0).enqueue(3) == first
        connection.commit()
    assert drain(app) == 1
    pending = index.options(key="k", unique="while_pending")
    with begun(app) as connection:
        assert pending.options(connection=connection).enqueue(4) != first
        connection.rollback()
    assert app.jobs(key="k") == [first]
    with begun(app) as connection:
        made = pending.options(connection=connection).enqueue(5)
        assert pending.options(connection=connection).enqueue(6) == made
        connection.commit()
    assert drain(app) == 1
    assert ran == [3, 5]


def test_the_job_that_an_open_transaction_was_given_does_not_start_before_it_commits(
    app: Penstock, index: Task[Any, Any], ran: list[int]
) -> None:
    """Or it could run without what the transaction is about to commit."""
    waiting = index.options(key="k", unique="while_waiting").enqueue(1)
    with begun(app) as connection:
        given = index.options(key="k", unique="while_waiting", connection=connection).enqueue(2)
        assert given == waiting
        worker = threading.Thread(target=drain, args=(app,))
        worker.start()
        worker.join(0.5)
        assert ran == []
        connection.commit()
    worker.join(60)
    drain(app)
    assert ran == [1]


def test_retention_leaves_the_key_of_a_later_job(app: Penstock, index: Task[Any, Any]) -> None:
    unique = index.options(key="k", unique="while_pending")
    unique.enqueue(1)
    drain(app)
    with travel(app, 90_000):
        second = unique.enqueue(2)
        assert prune(app.database, 86_400) == 1
        assert unique.enqueue(3) == second
        drain(app)
    with travel(app, 190_000):
        prune(app.database, 86_400)
    assert count(app, "job_keys") == 0


def test_options_that_contradict_are_refused(app: Penstock, index: Task[Any, Any]) -> None:
    for wrong in (
        {"unique": "while_pending"},
        {"key": "k", "unique": "always"},
        {"key": "k", "unique": "forever", "unique_for": 5},
        {"key": "k", "unique_for": 0},
        {"key": "k", "on_conflict": "raise"},
        {"key": "k", "on_conflict": "replace", "unique_for": 5},
    ):
        with pytest.raises(ConfigurationError):
            index.options(**wrong).enqueue(1)
    assert count(app, "jobs") == 0
    assert index.options(key="k", unique="forever").enqueue(1) == index.options(
        key="k", on_conflict="return"
    ).enqueue(2)
