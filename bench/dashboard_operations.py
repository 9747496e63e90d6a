"""Fills what operators look at: schedules with their ticks, the audit trail, limits, processes, rows of a reconciler.

One real row of each kind, multiplied by SQL as `dashboard_tables.py` does it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import String, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from bench.dashboard_tables import WEEK, Multiplied, time_ordered_id
from penstock import Penstock, Rate, Reconcilable
from penstock.queue import processes
from penstock.testing import drain
from penstock.values.ids import new_id

SCHEDULES = 500
TICKS = 20_000
"""Of one schedule."""
KEYS = 60
WAITING = 5
"""Jobs that wait for each key of a limit, beside the one that has it."""
PROCESSES = 40
ROWS = 50_000
SCHEDULE = "tenant-1"


class Base(DeclarativeBase):
    pass


class Volume(Base, Reconcilable):
    """A row that the reconciler of the benchmark looks after."""

    __tablename__ = "bench_volumes"
    id: Mapped[int] = mapped_column(primary_key=True)
    status: Mapped[str] = mapped_column(String(20), default="new")


def declare(app: Penstock) -> None:
    """Give an app the reconciler whose rows the page counts."""

    @app.reconciler(Volume, where=Volume.status == "new", name="attach")
    def attach(volume: Any) -> None: ...


def fill_operations(app: Penstock, multiply: Multiplied, finished: int) -> str:
    """Everything; the key of a limit that jobs wait for. The trail has an act for every hundred finished jobs."""
    _schedules(app, multiply)
    _audit(app, multiply, finished // 100)
    for number in range(PROCESSES):
        role, details = ("supervisor", "{}") if number % 8 == 0 else ("all", '{"queues": "all"}')
        host = f"host-{number // 8}"
        app.database.in_transaction(processes.register, new_id(), host, number, role, None, details, 86_400.0)
    Base.metadata.create_all(app.database.engine)
    with app.database.engine.begin() as connection:
        connection.execute(insert(Volume), [{"status": "new"} for _ in range(ROWS)])
    return _limits(app)


def _schedules(app: Penstock, multiply: Multiplied) -> None:
    @app.task(name="shop.report")
    def report() -> None: ...

    for number in range(SCHEDULES):
        app.schedules.create(report, name=f"tenant-{number}", every=3600)
    schedule = app.schedule(SCHEDULE)
    schedule.trigger()
    hour = 3_600_000_000
    nominal = f":now - n * {hour}"
    times = {"nominal_at": nominal, "first_at": nominal, "decided_at": f"{nominal} + 1000", "kind": "'tick'"}
    multiply("schedule_ticks", schedule.id, TICKS, where="schedule_id = :like", **times)


def _audit(app: Penstock, multiply: Multiplied, count: int) -> None:
    with app.acting(by="ann", why="a ticket"):
        app.schedule(SCHEDULE).pause()
    act = app.audit(app.schedule(SCHEDULE).id, limit=1)[0]
    span = WEEK // max(1, count)
    multiply(
        "audits",
        act.id,
        count,
        where="id = :like",
        id=time_ordered_id("9", span),
        acted_at=f":now - n * {span}",
    )


def _limits(app: Penstock) -> str:
    @app.task(name="shop.limited", queue="limited", limits=[Rate(1, per=86_400, key="account")])
    def limited(account: str) -> None: ...

    limited.enqueue_many([(f"account-{n % KEYS}",) for n in range(KEYS * (1 + WAITING))])
    drain(app, queues="limited")
    return "rate/86400s of shop.limited: account=account-1"
