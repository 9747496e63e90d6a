"""queue/reclaim: SIGKILL of everything at once, under load, again and again; then a fresh start. What is promised:

a body runs at least once, its result is recorded exactly once;
effects written through job.transaction() happen exactly once;
no work is lost when processes die.
"""

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL

import pytest

from penstock import Penstock
from tests.process import ledger
from tests.process.forks import killed_at, points_of, started
from tests.process.history import check, declare_dead, done, recover, rows, settled
from tests.process.programs import start_worker
from tests.process.scenes import Part, make_app, unfinished
from tests.waiting import eventually
from tests.workers import Workers

pytestmark = pytest.mark.process


@pytest.fixture
def shop(database_url: str) -> Iterator[Penstock]:
    app = make_app(database_url)
    ledger.create(app)
    yield app
    app.close()


def balanced(shop: Penstock, jobs: dict[str, dict[str, object]]) -> None:
    """Exactly one line for every job that succeeded, and no line for anything else."""
    booked = Counter(job for job, _ in ledger.lines(shop))
    succeeded = {id for id, job in jobs.items() if job["task"] == "book" and job["status"] == "succeeded"}
    assert set(booked.values()) == {1}, "booked twice"
    assert set(booked) == succeeded


def test_effects_happen_once_though_workers_are_killed_at_random(shop: Penstock, database_url: str) -> None:
    chance = random.Random(7)
    shop.tasks["book"].enqueue_many([(number,) for number in range(400)])
    shop.tasks["double"].options(max_crashes=None).enqueue_many([(number,) for number in range(100)])
    deaths = 0
    part = Part(database_url, "serve", settings={"concurrency": 5, "batch": 5})
    while deaths < 6:
        wanted = done(shop) + chance.randrange(5, 50)
        with started(part) as one, started(part) as other:
            wait_for(shop, wanted)
            one.kill()
            other.kill()
        deaths += 1
        declare_dead(shop)
    assert unfinished(shop)
    recover(shop)
    jobs = check(shop)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert {job["retry_count"] for job in jobs.values()} == {0}
    balanced(shop, jobs)


def wait_for(shop: Penstock, count: int) -> None:
    eventually(lambda: done(shop) >= count, 60)


def test_an_effect_may_be_killed_anywhere(shop: Penstock, database_url: str, tmp_path: Path) -> None:
    book = shop.tasks["book"]
    book.options(queue="undisturbed").enqueue(1)
    part = Part(database_url, "work", "undisturbed")
    points = [point for point in points_of(part, tmp_path) if point.split(".")[0] in ("effects", "settle")]
    struck = set()
    for point in points:
        book.options(queue=f"at-{point}").enqueue(1)
        if killed_at(point, Part(database_url, "work", f"at-{point}")):
            struck.add(point)
    assert {"effects.1", "effects.commit", "effects.committed", "settle.1", "settle.commit"} <= struck
    declare_dead(shop)
    recover(shop)
    jobs = check(shop)
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    balanced(shop, jobs)


def test_everything_is_killed_at_once_and_a_fresh_start_finishes_the_work(
    worker_process: Workers, shop: Penstock
) -> None:
    shop.tasks["linger"].enqueue_many([(number,) for number in range(200)])
    workers = [start_worker(worker_process, "--processes", "2", "--concurrency", "5") for _ in range(2)]
    eventually(lambda: done(shop) > 30)
    for worker in workers:
        worker.kill()
        assert worker.wait() == -SIGKILL
    left = unfinished(shop)
    assert left > 0
    dead = processes(shop)
    fresh = start_worker(worker_process, "--processes", "2")
    settled(shop)
    eventually(lambda: not dead & processes(shop))
    assert fresh.stop() == 0
    jobs = check(shop, worker_process.folder / "diary")
    assert {job["status"] for job in jobs.values()} == {"succeeded"}
    assert {job["crash_count"] for job in jobs.values()} == {0, 1}
    assert sum(job["crash_count"] for job in jobs.values()) <= 40, "only what was in hand has crashed"


def processes(app: Penstock) -> set[str]:
    return {str(id) for (id,) in rows(app, "SELECT id FROM {processes}")}
