"""operate/overview: Status: what waits, runs and has failed, by queue; how long it waits; who is there."""

from penstock import Penstock
from penstock.operate.overview import QueueCounts, gauges, overview
from penstock.queue import schedule
from penstock.testing import drain, travel
from tests.conformance.operate.helpers import enqueue, look, register, take


def counts(app: Penstock) -> dict[str, tuple[int, int, int, int]]:
    return {q.queue: (q.available, q.scheduled, q.running, q.failed) for q in look(app).queues}


def test_an_empty_database_has_nothing_to_show(app: Penstock) -> None:
    app.prepare()
    seen = look(app)
    assert (seen.queues, seen.processes, seen.recent, seen.workers) == ([], {}, {}, 0)


def test_every_state_is_counted_where_it_belongs(app: Penstock) -> None:
    enqueue(app, "fail", 1)
    drain(app)
    for number in range(5):
        enqueue(app, "quick", number)
    take(app, register(app), limit=2)
    enqueue(app, "quick", 9, delay=60)
    enqueue(app, "quick", 9, queue="mail", priority=3)
    enqueue(app, "quick", 9, queue="mail", priority=-3)
    assert counts(app) == {"default": (3, 1, 2, 1), "mail": (2, 0, 0, 0)}
    assert look(app).recent == {"available": 5, "failed": 1, "running": 2, "scheduled": 1}


def test_counting_stops_at_the_limit(app: Penstock) -> None:
    app.tasks["quick"].enqueue_many([(n,) for n in range(30)])
    seen = app.database.read(overview, 30.0, 10)
    assert [queue.available for queue in seen.queues] == [10]
    assert seen.count_limit == 10


def test_the_lag_is_the_age_of_the_oldest_ready_job(app: Penstock) -> None:
    enqueue(app, "quick", 1)
    with travel(app, 90):
        enqueue(app, "quick", 2, queue="mail")
        lags = {queue.queue: queue.lag for queue in look(app).queues}
    assert 89 < (lags["default"] or 0) < 150
    assert (lags["mail"] or 0) < 60


def test_a_delay_is_no_lag(app: Penstock) -> None:
    app.tasks["quick"].options(delay=3600).enqueue(1)
    with travel(app, 3601):
        assert app.database.in_transaction(schedule.promote, 10) == [("default", 0)]
        (seen,) = look(app).queues
    assert (seen.available, seen.scheduled) == (1, 0)
    assert 0 <= (seen.lag or 0) < 60


def test_only_live_processes_are_counted(app: Penstock) -> None:
    register(app, "supervisor")
    with travel(app, 60):
        register(app)
        register(app)
        assert look(app).processes == {"all": 2}
        assert look(app).workers == 2


def test_the_same_numbers_as_metrics(app: Penstock) -> None:
    enqueue(app, "quick", 1)
    register(app)
    lines = gauges(look(app)).splitlines()
    assert 'penstock_queue_jobs{queue="default",status="available"} 1' in lines
    assert 'penstock_processes{role="all"} 1' in lines
    assert any(line.startswith('penstock_queue_lag_seconds{queue="default"} ') for line in lines)


def test_counts_default_to_nothing() -> None:
    assert QueueCounts("mail") == QueueCounts("mail", 0, 0, 0, 0, None)
