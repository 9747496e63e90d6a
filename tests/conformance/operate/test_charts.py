"""queue/tallies, operate/pages/charts: every attempt is counted once, whatever process dies; no history is read."""

import threading

import pytest

from penstock import Penstock, Retry
from penstock.operate.pages.charts import ChartPoint, Period, chart, top_tasks
from penstock.queue import tallies
from penstock.testing import crash_at, drain, travel


def total(app: Penstock, period: Period = Period.HOUR) -> ChartPoint:
    points = app.database.read(chart, period).points
    summed = ChartPoint(0)
    for point in points:
        summed.succeeded += point.succeeded
        summed.errors += point.errors
        summed.failed += point.failed
    return summed


def worked(app: Penstock, good: int, bad: int) -> None:
    @app.task(name="good")
    def fine(number: int) -> int:
        return number

    @app.task(name="bad", retries=Retry(max=1, delay=0))
    def broken(number: int) -> None:
        raise ValueError(number)

    fine.enqueue_many([(number,) for number in range(good)])
    broken.enqueue_many([(number,) for number in range(bad)])
    drain(app)


def test_attempts_are_counted_before_and_after_the_fold(app: Penstock) -> None:
    worked(app, 5, 2)
    expected = (5, 4, 2)
    before = total(app)
    assert (before.succeeded, before.errors, before.failed) == expected
    while app.database.in_transaction(tallies.fold, 3):
        pass
    assert not app.database.read(tallies.are_there)
    for period in Period:
        after = total(app, period)
        assert (after.succeeded, after.errors, after.failed) == expected
    shares = app.database.read(top_tasks, Period.HOUR)
    assert [(share.task, share.attempts, share.errors, share.failed) for share in shares] == [
        ("good", 5, 0, 0),
        ("bad", 4, 4, 2),
    ]


@pytest.mark.parametrize("point", ["fold.1", "fold.2", "fold.3", "fold.4", "fold.commit", "fold.committed"])
def test_a_fold_that_dies_counts_nothing_twice(app: Penstock, point: str) -> None:
    worked(app, 3, 1)
    with crash_at(point) as crash:
        app.database.in_transaction(tallies.fold)
    assert crash.crashed
    assert (total(app).succeeded, total(app).errors) == (3, 2)
    app.database.in_transaction(tallies.fold)
    assert (total(app).succeeded, total(app).errors) == (3, 2)


@pytest.mark.parametrize("point", ["tally.1", "tally.commit"])
def test_a_settle_that_dies_leaves_no_tally(app: Penstock, point: str) -> None:
    with crash_at(point) as crash:
        worked(app, 1, 0)
    assert crash.crashed
    assert total(app).succeeded == 0
    drain(app)
    assert (total(app).succeeded, total(app).errors) == (1, 1)  # the crash is one


def test_several_may_fold_at_once(app: Penstock) -> None:
    worked(app, 40, 0)

    def fold() -> None:
        for _ in range(20):
            app.database.in_transaction(tallies.fold, 3)

    threads = [threading.Thread(target=fold) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    app.database.in_transaction(tallies.fold)
    assert not app.database.read(tallies.are_there)
    assert total(app).succeeded == 40


def test_old_rollups_go_and_hours_stay(app: Penstock) -> None:
    worked(app, 1, 0)
    app.database.in_transaction(tallies.fold)
    travel(app, 5 * 86_400)
    app.database.in_transaction(tallies.prune)
    spans = app.database.read(lambda tx: tx.rows("SELECT span FROM {rollups}"))
    assert spans == [("hour",)]
    assert total(app, Period.WEEK).succeeded == 1


def test_the_queues_are_measured(app: Penstock) -> None:
    @app.task(name="good", queue="mail")
    def fine(number: int) -> int:
        return number

    fine.enqueue_many([(1,), (2,)])
    travel(app, 30)
    app.database.in_transaction(tallies.sample, app.database.read(tallies.measure))
    points = app.database.read(chart, Period.HOUR, None, "mail").points
    assert points[-1].available == 2
    assert 30 <= points[-1].lag < 600
    assert app.database.read(chart, Period.HOUR, None, "other").points[-1].available == 0
