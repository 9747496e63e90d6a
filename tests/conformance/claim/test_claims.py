"""queue/claim: a claim takes no more than asked for and no job twice; no queue starves, no job is overlooked."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf
from threading import Barrier

import pytest

from penstock import Penstock
from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.queue import claim as queue_claim
from penstock.queue import processes
from penstock.queue.enqueue import enqueue
from penstock.queue.jobs import Claim, NewJob, tier_of
from penstock.runtime.pump.job_source import JobSource
from penstock.runtime.pump.lanes import Lanes
from penstock.testing import drain
from penstock.values.ids import new_id, new_token
from penstock.values.parse import parse_queues
from tests.conformance.rows import count, rows, state


def jobs(number: int, queue: str = "default", priority: int = 0, task: str = "note") -> list[NewJob]:
    return [NewJob(new_id(), task, queue, priority, "{}") for _ in range(number)]


def write(app: Penstock, *batches: list[NewJob]) -> list[str]:
    app.prepare()
    return app.database.in_transaction(enqueue, [job for batch in batches for job in batch])


def sweep_no_more(source: JobSource) -> None:
    """From now on only what lies above the floors is looked at, however long this machine takes."""
    source.lanes._next_sweep, source.lanes._forced = inf, False


def source_on(app: Penstock, queues: str | None = None) -> JobSource:
    """A process of its own, with the runtime's memory of the queue."""
    process = new_id()
    app.prepare()
    app.database.in_transaction(processes.register, process, "host", 1, "all", None, "{}")
    limits = parse_queues(queues) if queues else None
    lanes = Lanes(limits, 0.0, app.database.dialect.keeps_dead_rows)
    return JobSource(lambda: process, lambda: ["note"], lanes, app.wakeups, app.events, app.follow)


def take(app: Penstock, source: JobSource, limit: int) -> list[Claim]:
    claims = app.database.in_transaction(source.claim, limit)
    source.committed()
    return claims


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_a_claim_never_takes_more_than_its_limit(app: Penstock, limit: int) -> None:
    write(app, jobs(20), jobs(20, "mail"), jobs(20, "mail", 5), jobs(20, "other", 9))
    source = source_on(app)
    taken = [len(take(app, source, limit)) for _ in range(4)]
    assert taken[0] == min(limit, 80)
    assert max(taken) <= limit
    assert sum(taken) + count(app, "availabilities") == 80


def test_a_claim_takes_the_most_urgent_of_all_queues(app: Penstock) -> None:
    write(app, jobs(3), jobs(2, "mail", 9), jobs(2, "other", 5))
    claims = take(app, source_on(app), 4)
    assert [claim.tier for claim in claims] == [tier_of(9), tier_of(9), tier_of(5), tier_of(5)]


def test_equals_are_taken_in_order(app: Penstock) -> None:
    ids = write(app, jobs(10))
    source = source_on(app)
    assert [claim.job_id for _ in range(5) for claim in take(app, source, 2)] == ids


def test_a_claim_leaves_a_receipt_and_a_token_of_its_own(app: Penstock) -> None:
    write(app, jobs(4))
    source = source_on(app)
    first, second = take(app, source, 2), take(app, source, 2)
    tokens = {claim.token for claim in first}, {claim.token for claim in second}
    assert len(tokens[0]) == len(tokens[1]) == 1
    assert tokens[0] != tokens[1]
    assert {token for (token,) in rows(app, "SELECT token FROM {claims}")} == tokens[0] | tokens[1]
    for claim in (*first, *second):
        held = state(app, claim.job_id)
        assert (held["status"], held["token"], held["generation"]) == ("running", claim.token, 1)


def test_who_is_not_registered_gets_nothing(app: Penstock) -> None:
    """A process that was taken for dead must not claim before it has found out."""
    write(app, jobs(4))
    lanes = [Lane("default", 0, 0, 10)]
    claims, _ = app.database.in_transaction(
        lambda tx: queue_claim.claim(tx, lanes, ["note"], 10, new_token(), new_id())
    )
    assert claims == []
    assert count(app, "availabilities") == 4


def test_an_unknown_task_is_left_for_others(app: Penstock, make_app: Callable[..., Penstock]) -> None:
    newer = make_app()
    ran: list[str] = []

    @newer.task(name="new")
    def new() -> None:
        ran.append("new")

    @app.task(name="old")
    def old() -> None:
        ran.append("old")

    job = new.options(priority=5).enqueue()
    old.enqueue()
    assert drain(app) == 1
    assert job.status == "available"
    assert job.attempts() == []
    assert drain(newer) == 1
    assert ran == ["old", "new"]


def test_two_claimers_never_get_the_same_job(make_app: Callable[..., Penstock]) -> None:
    app = make_app(pool_size=8)
    write(app, jobs(400))
    sources = [source_on(app) for _ in range(8)]
    barrier = Barrier(8)

    def race(source: JobSource) -> list[str]:
        barrier.wait()
        mine: list[str] = []
        while claims := take(app, source, 10):
            mine += [claim.job_id for claim in claims]
        return mine

    with ThreadPoolExecutor(8) as threads:
        taken = [job_id for mine in threads.map(race, sources) for job_id in mine]
    assert len(taken) == len(set(taken)) == 400


def test_a_queue_with_a_limit_is_never_over_it(app: Penstock) -> None:
    write(app, jobs(20, "mail"), jobs(20))
    source = source_on(app, "mail:3,default")
    claims = take(app, source, 30) + take(app, source, 30)
    assert Counter(claim.queue for claim in claims)["mail"] == 3
    source.holdings.remove([claim for claim in claims if claim.queue == "mail"][:2])
    assert Counter(claim.queue for claim in take(app, source, 30))["mail"] == 2


def test_queues_that_were_not_asked_for_are_left(app: Penstock) -> None:
    write(app, jobs(5, "mail"), jobs(5))
    assert {claim.queue for claim in take(app, source_on(app, "mail"), 100)} == {"mail"}
    assert take(app, source_on(app, "other"), 100) == []


def test_a_large_queue_does_not_starve_a_small_one(app: Penstock) -> None:
    write(app, jobs(300, "big"), jobs(5, "small"))
    source = source_on(app)
    taken = [claim.queue for _ in range(20) for claim in take(app, source, 5)]
    assert taken.count("small") == 5


def test_a_job_that_was_cancelled_meanwhile_is_passed_over(app: Penstock) -> None:
    ids = write(app, jobs(5))
    for job_id in ids[:3]:
        app.job(job_id).cancel()
    claims = take(app, source_on(app), 100)
    assert [claim.job_id for claim in claims] == ids[3:]
    assert count(app, "availabilities") == 0


@contextmanager
def open_transaction(app: Penstock) -> Iterator[Transaction]:
    with app.database.transaction() as tx:
        yield tx


def test_a_lower_sequence_that_commits_late_is_found_by_the_sweep(app: Penstock) -> None:
    """Sequences are handed out at the insert, not at the commit: the floor may already lie above."""
    if app.database.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer: sequences commit in order")
    source = source_on(app)
    early, late = jobs(1), jobs(1)
    with open_transaction(app) as tx:
        enqueue(tx, early)
        tx.dialect.wait(tx.opened)
        write(app, late)
        assert [claim.job_id for claim in take(app, source, 10)] == [late[0].id]
        sweep_no_more(source)
        assert take(app, source, 10) == []
    assert take(app, source, 10) == [], "the floor hides it"
    source.lanes.force_sweep()
    assert [claim.job_id for claim in take(app, source, 10)] == [early[0].id]


def test_a_wake_up_for_a_new_lane_needs_no_sweep(app: Penstock) -> None:
    source = source_on(app)
    take(app, source, 10)
    sweep_no_more(source)
    write(app, jobs(1, "mail", 7))
    assert take(app, source, 10) == []
    source.heard({f"ready\tmail\t{tier_of(7)}"})
    assert len(take(app, source, 10)) == 1


def test_claims_of_a_transaction_that_failed_are_given_back(app: Penstock) -> None:
    """The answer to the commit was lost: what we hold without knowing it goes back, and spends nothing."""
    write(app, jobs(3))
    source = source_on(app)
    app.database.in_transaction(source.claim, 2)
    source.rolled_back()
    app.database.in_transaction(source.recover)
    source.lanes.force_sweep()
    claims = take(app, source, 10)
    assert len(claims) == 3
    assert {claim.crash_count for claim in claims} == {0}
    assert count(app, "executions") == 0
