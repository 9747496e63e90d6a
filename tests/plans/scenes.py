"""Work in batches of a known size: what busy workers do to the tables, without their threads.

Each scene is played with tasks of its own names, so that all of them can be played on one database.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Self

from sqlalchemy import String, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Concurrency, Penstock, Reconcilable, Retry, Snooze
from penstock.operate.pages.charts import Period, chart
from penstock.queue import reclaim, tallies
from penstock.reconcile import outcome
from penstock.runtime.executors.job_work import JobWork
from penstock.runtime.reconcilers.row_source import RowSource
from penstock.testing.drain import ManualWorker
from penstock.values.ids import new_id
from penstock.values.outcome import Released

QUEUE = "default"
MAKE_DUE = """
UPDATE {schedules} SET next_at = next_at - 10000000, due_at = next_at - 10000000
WHERE target = 'tick' AND every = 10000000
"""
FORGET = "DELETE FROM {schedules} WHERE every = 10000000"
Play = Callable[[int], None]
Scene = Callable[[Penstock], Play]


class Batches(ManualWorker):
    """A worker that takes as much as it is told to, and ends all of it at once."""

    def __init__(self, app: Penstock) -> None:
        super().__init__(app, QUEUE)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def claim(self, most: int) -> list[JobWork]:
        self._room = most
        self.source.lanes.force_sweep()
        self._turn()
        self._room = 0
        works = [work for claim in self._taken if (work := self.begin(claim)) is not None]
        self._taken.clear()
        return works

    def work_off(self, most: int) -> int:
        """Everything that is ready, and what follows from it, with the tasks' own handlers."""
        before = self.attempts
        while works := self.claim(most):
            for work in works:
                self.finish(work, work.run_here(self.around))
            self._turn()
        return self.attempts - before


def ends(app: Penstock) -> Play:
    """Enqueued, claimed and settled: with success, and with every other outcome."""

    @app.task(name="succeed")
    def succeed(number: int) -> int:
        return number

    @app.task(name="end", retries=0)
    def end(number: int) -> object:
        if number % 3 == 1:
            raise ValueError(number)
        return Snooze(3600) if number % 3 == 2 else None

    @app.task(name="fail", retries=Retry(delay=3600))
    def fail(number: int) -> None:
        raise ValueError(number)

    def play(size: int) -> None:
        for task in (succeed, end, fail):
            task.enqueue_many([(number,) for number in range(size)])
            with Batches(app) as worker:
                assert worker.work_off(size) == size

    return play


def become_due(app: Penstock) -> Play:
    """Delayed, promoted, and done."""

    @app.task(name="late")
    def late(number: int) -> int:
        return number

    def play(size: int) -> None:
        late.options(delay=0.000_001).enqueue_many([(number,) for number in range(size)])
        with Batches(app) as worker:
            while worker.housekeeping.promote():
                pass
            assert worker.work_off(size) == size

    return play


def come_back(app: Penstock) -> Play:
    """Given back by a worker that leaves; held by one that is gone, and taken back."""

    @app.task(name="held")
    def held(number: int) -> int:
        return number

    def play(size: int) -> None:
        held.enqueue_many([(number,) for number in range(size)])
        with Batches(app) as leaving:
            for work in leaving.claim(size):
                leaving.finish(work, Released())
        dead = Batches(app).__enter__()
        assert len(dead.claim(size)) == size
        app.database.in_transaction(reclaim.remove_process, dead.identity.id)
        dead.pump.link.keep_idle()
        dead.waker.close()
        with Batches(app) as heir:  # takes back what no process holds
            assert heir.work_off(size) == size

    return play


def limited(app: Penstock) -> Play:
    """Counted against a limit that has room for some of them; the rest is parked and let go."""

    @app.task(name="narrow", limits=[Concurrency(50)])
    def narrow(number: int) -> int:
        return number

    def play(size: int) -> None:
        narrow.enqueue_many([(number,) for number in range(size)])
        with Batches(app) as worker:
            assert worker.work_off(size) == size

    return play


def five_steps(app: Penstock) -> Play:
    """As many runs, each of five steps in a row, all of them at the same step at a time."""

    @app.task(name="next")
    def following(number: int) -> int:
        return number + 1

    @app.pipeline(name="five")
    def five(number: int) -> object:
        return following(following(following(following(following(number)))))

    def play(size: int) -> None:
        five.trigger_many([(number,) for number in range(size)])
        with Batches(app) as worker:
            assert worker.work_off(size) == 5 * size

    return play


def joined(app: Penstock) -> Play:
    """As many runs, each with two branches that meet."""

    @app.task(name="branch")
    def branch(number: int) -> int:
        return number

    @app.task(name="both")
    def both(one: int, other: int) -> int:
        return one + other

    @app.pipeline(name="meet")
    def meet(number: int) -> object:
        return both(branch(number), branch(number))

    def play(size: int) -> None:
        meet.trigger_many([(number,) for number in range(size)])
        with Batches(app) as worker:
            assert worker.work_off(size) == 3 * size

    return play


def spread(app: Penstock) -> Play:
    """One run, which spreads over as many elements and collects them."""

    @app.task(name="numbers")
    def numbers(count: int) -> list[int]:
        return list(range(count))

    @app.task(name="element")
    def element(number: int) -> int:
        return number

    @app.task(name="total")
    def total(values: list[int]) -> int:
        return len(values)

    @app.pipeline(name="fan")
    def fan(count: int) -> object:
        return total(element.map(numbers(count)).collect())

    def play(size: int) -> None:
        run = fan.trigger(size)
        with Batches(app) as worker:
            worker.work_off(size)
        assert run.result(timeout=0) == size

    return play


def followed(app: Penstock) -> Play:
    """Each job has a follower, which is released when the job ends."""

    @app.task(name="leader")
    def leader(number: int) -> int:
        return number

    @app.task(name="follower")
    def follower(number: int) -> int:
        return number

    def play(size: int) -> None:
        for job in leader.enqueue_many([(number,) for number in range(size)]):
            job.then(follower, 1)
        with Batches(app) as worker:
            assert worker.work_off(size) == size
            while worker.housekeeping.promote():
                pass
            assert worker.work_off(size) == size

    return play


def scheduled(app: Penstock) -> Play:
    """As many schedules are due at once; each starts a job."""

    @app.task(name="tick")
    def tick() -> None: ...

    turns = count()

    def play(size: int) -> None:
        turn = next(turns)
        for number in range(size):
            name = f"{turn}: {number}"
            app.schedules.create(tick, every=10, start=datetime(2020, 1, 1, tzinfo=UTC), name=name)
        app.database.in_transaction(lambda tx: tx.run(MAKE_DUE))
        while app.fire_ticks():
            pass
        with Batches(app) as worker:
            assert worker.work_off(size) >= size
        app.database.in_transaction(lambda tx: tx.run(FORGET))

    return play


class Base(DeclarativeBase):
    pass


class Widget(Base, Reconcilable):
    """A table of the user's."""

    __tablename__ = "plan_widgets"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(20))


def reconciled(app: Penstock) -> Play:
    """As many rows of the user's table are claimed, and what came of them is applied."""

    @app.reconciler(Widget, name="widgets", where=Widget.status == "new")
    def widgets(item: object) -> None: ...

    Base.metadata.create_all(app.database.engine)
    reconciler = app.reconcilers["widgets"]
    source = RowSource(app.database, reconciler, app.wakeups, app.events)

    def play(size: int) -> None:
        with app.database.engine.begin() as connection:
            connection.execute(insert(Widget), [{"status": "new"}] * size)
        items = app.database.in_transaction(source.claim, size)
        source.committed()
        assert len(items) == size
        ends = [outcome.returned(reconciler.policy, item, {"status": "done"}) for item in items]
        app.database.in_transaction(source.settle, ends)
        source.committed()
        assert not app.database.in_transaction(source.claim, size)
        source.committed()

    return play


def counted(app: Penstock) -> Play:
    """Attempts are folded into roll-ups, the length of a queue is written, and a chart shows both.

    To measure a queue is no part of it: its jobs are counted up to a limit, however large the batch is.
    """

    @app.task(name="count")
    def counts(number: int) -> int:
        return number

    def play(size: int) -> None:
        counts.enqueue_many([(number,) for number in range(size)])
        app.database.in_transaction(tallies.sample, [tallies.QueueSample(QUEUE, size, 1)])
        with Batches(app) as worker:
            assert worker.work_off(size) == size
        while app.database.in_transaction(tallies.fold, size, []):
            pass
        drawn = app.database.read(chart, Period.HOUR, "count")
        assert sum(point.succeeded for point in drawn.points) >= size
        assert max(point.available for point in drawn.points) >= size

    return play


def fill(app: Penstock, rows: int) -> None:
    """Schedules that are not due, and rows that no reconciler wants."""
    table = next(each for each in app.metadata.tables.values() if each.name.endswith("_schedules"))
    task = app.tasks["tick"]
    app.schedules.create(task, "0 0 1 1 *", name="history")
    with app.database.engine.begin() as connection:
        one = dict(connection.execute(select(table)).mappings().first() or {})
        copies = [one | {"id": new_id(), "name": f"history {number}"} for number in range(rows)]
        connection.execute(insert(table), copies)
        connection.execute(insert(Widget), [{"status": "done"}] * rows)


SCENES: tuple[Scene, ...] = (
    ends,
    become_due,
    come_back,
    limited,
    five_steps,
    joined,
    spread,
    followed,
    scheduled,
    reconciled,
    counted,
)
