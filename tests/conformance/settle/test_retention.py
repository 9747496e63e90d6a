"""queue/retention: Retention: finished work goes after a while, with everything that belongs to it, and nothing
else.
"""

from penstock import Penstock
from penstock.queue import retention
from penstock.runtime.liveness.housekeeping import Housekeeping
from penstock.testing import drain, travel
from penstock.values.ids import FIRST_ID
from tests.conformance.rows import count

DAY = 86_400
TABLES = ("jobs", "job_states", "executions", "job_keys", "markers", "progress", "dead_letters")


def prune(app: Penstock, age: float = 14 * DAY, limit: int = 100) -> int:
    removed, after = 0, FIRST_ID
    while after is not None:
        some, after = app.database.in_transaction(retention.prune, age, after, limit)  # type: ignore[assignment]
        removed += some
    return removed


def test_old_finished_jobs_go_and_the_rest_stays(app: Penstock) -> None:
    @app.task(retries=0)
    def note(fails: bool = False) -> None:
        if fails:
            raise ValueError

    done = note.options(key="done").enqueue()
    failed = note.options(key="failed").enqueue(True)
    cancelled = note.enqueue()
    cancelled.cancel()
    waiting = note.options(delay=100 * DAY, key="waiting").enqueue()
    drain(app)
    assert prune(app) == 0
    with travel(app, 13 * DAY):
        assert prune(app) == 0
    with travel(app, 15 * DAY):
        fresh = note.enqueue()
        drain(app)
        assert prune(app) == 3
        assert prune(app) == 0
    assert {table: count(app, table) for table in TABLES} == {
        "jobs": 2,
        "job_states": 2,
        "executions": 1,
        "job_keys": 1,
        "markers": 0,
        "progress": 0,
        "dead_letters": 0,
    }
    assert (waiting.status, fresh.status) == ("scheduled", "succeeded")
    assert note.options(key="waiting").enqueue() == waiting
    assert note.options(key="done").enqueue() != done
    assert note.options(key="failed").enqueue() != failed


def test_it_goes_in_batches_and_passes_over_what_is_not_finished(app: Penstock) -> None:
    @app.task
    def note(number: int) -> None: ...

    jobs = note.enqueue_many([(n,) for n in range(25)])
    late = note.options(delay=100 * DAY).enqueue_many([(n,) for n in range(25)])
    drain(app)
    with travel(app, 15 * DAY):
        assert prune(app, limit=7) == len(jobs)
    assert count(app, "jobs") == len(late)


def test_one_of_many_does_it(app: Penstock) -> None:
    @app.task
    def note() -> None: ...

    note.enqueue()
    drain(app)
    keepers = [
        Housekeeping(app.database, lambda id=id: id, app.wakeups, app.events, app.follow)  # type: ignore[misc]
        for id in ("01900000-0000-7000-8000-000000000001", "01900000-0000-7000-8000-000000000002")
    ]
    with travel(app, 15 * DAY):
        for keeper in keepers:
            keeper.retention.prune(14 * DAY)
        assert count(app, "jobs") == 0
        assert len({holder for (holder,) in _leases(app)}) == 1


def _leases(app: Penstock) -> list[tuple[str]]:
    return app.database.read(lambda tx: tx.rows("SELECT holder FROM {leases}"))
