"""Fills the tables of PostgreSQL as years of work would, by SQL: one real row of each kind, multiplied.

A row that is multiplied differs in its id, its times, its task and what else a page sorts or filters by. Ids are made
like real ones: their order is that of the times.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock import Penstock
from penstock.database.transaction import Transaction
from penstock.queue.tallies import RollupSpan
from penstock.testing import drain

CHUNK = 500_000
WEEK = 7 * 86_400 * 1_000_000
TASKS = 40
ROLLED_TASKS = 100
QUEUES = 20
"""Of the roll-ups."""
COLUMNS = (
    "SELECT column_name FROM information_schema.columns"
    " WHERE table_name = :table AND table_schema = current_schema() AND is_identity = 'NO' ORDER BY ordinal_position"
)


@dataclass(frozen=True, slots=True)
class Size:
    finished: int
    pending: int
    runs: int
    elements: int
    """Of one run."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Ids that pages are asked for."""

    job: str
    run: str
    large_run: str
    limit: str = ""
    """A key of a limit that jobs wait for."""


def load(app: Penstock, size: Size) -> Loaded:
    """Everything; the caller takes the statistics."""
    done, dead, small, fan = _examples(app)
    multiply = Multiplied(app)
    span = max(1, WEEK // max(1, size.finished))
    made = f":now - CAST({WEEK} - n * {span} AS bigint)"
    ended = f"{made} + 60000"
    multiply("jobs", done, size.finished, id=time_ordered_id("1", span), task=_task(), created_at=made)
    multiply(
        "job_states",
        done,
        size.finished,
        job_id=time_ordered_id("1", span),
        claimed_at=made,
        finished_at=ended,
    )
    multiply(
        "executions",
        done,
        size.finished,
        job_id=time_ordered_id("1", span),
        started_at=made,
        finished_at=ended,
    )
    for table in ("jobs", "job_states", "executions", "dead_letters"):
        multiply(table, dead, size.finished // 1000, **_own(table, time_ordered_id("2", span * 1000), made))
    _pending(app, multiply, done, size.pending)
    _runs(multiply, small, size.runs)
    _elements(multiply, fan, size.elements)
    app.database.in_transaction(fill_rollups)
    return Loaded(done, small, fan)


class Multiplied:
    """Copies one row so often, with other values in some columns."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.now = app.database.read(
            lambda tx: int(tx.rows("SELECT extract(epoch FROM now()) * 1000000")[0][0])
        )

    def __call__(self, table: str, like: str, count: int, *, where: str = "", **values: str) -> None:
        for first in range(1, count + 1, CHUNK):
            last = min(first + CHUNK - 1, count)
            self.app.database.in_transaction(self._copy, table, like, (first, last), where, values)

    def _copy(
        self,
        tx: Transaction,
        table: str,
        like: str,
        span: tuple[int, int],
        where: str,
        values: Mapping[str, str],
    ) -> None:
        names = [str(row[0]) for row in tx.rows(COLUMNS, table=f"penstock_{table}")]
        known = {name: value for name, value in values.items() if name in names}
        key = where or (f"{'id' if table in ('jobs', 'runs') else 'job_id'} = :like")
        given: dict[str, Any] = {"like": like, "first": span[0], "last": span[1]}
        if any(":now" in value for value in known.values()):
            given["now"] = self.now
        tx.run(
            f"INSERT INTO {{{table}}} ({', '.join(names)}) SELECT {', '.join(known.get(n, n) for n in names)}"
            f" FROM (SELECT * FROM {{{table}}} WHERE {key} LIMIT 1) AS one,"
            f" generate_series(CAST(:first AS bigint), :last) AS n",
            **given,
        )


def _examples(app: Penstock) -> tuple[str, str, str, str]:
    """One of each, made by a worker: a job that succeeded, one that failed, a run, and a run with an expand."""

    @app.task(name="shop.task-0")
    def work(number: int) -> int:
        return number

    @app.task(name="shop.broken", retries=0)
    def broken(number: int) -> int:
        raise ValueError(f"order {number}")

    @app.task(name="shop.list")
    def listed(count: int) -> list[int]:
        return list(range(count))

    @app.task(name="shop.total")
    def total(values: list[int]) -> int:
        return len(values)

    @app.pipeline(name="small")
    def small(number: int) -> Any:
        return work(work(number))

    @app.pipeline(name="fan")
    def fan(count: int) -> Any:
        return total(work.map(listed(count)).collect())

    done, dead, run, large = work.enqueue(1), broken.enqueue(1), small.trigger(1), fan.trigger(1)
    drain(app)
    return done.id, dead.id, run.id, large.id


def _pending(app: Penstock, multiply: Multiplied, done: str, count: int) -> None:
    """Of a hundred jobs 70 are ready in ten queues, and 30 are due some day."""
    id = time_ordered_id("3", 1000)
    queue = "'queue-' || n % 10"
    new = {"task": _task(), "queue": queue, "created_at": ":now + n * 1000"}
    multiply("jobs", done, count, id=id, **new)
    status = "CASE WHEN n % 10 < 7 THEN 'available' ELSE 'scheduled' END"
    nothing = dict.fromkeys(("token", "process_id", "claimed_at", "finished_at", "reason"), "NULL")
    due = "CASE WHEN n % 10 < 7 THEN NULL ELSE :now + 86400000000 + n * 1000 END"
    multiply("job_states", done, count, job_id=id, status=status, due_at=due, **nothing)

    def queued(tx: Transaction) -> None:
        given: dict[str, Any] = {"count": count}
        many = "generate_series(CAST(1 AS bigint), :count) AS n"
        tx.run(
            f"INSERT INTO {{availabilities}} (queue, tier, job_id, task) SELECT {queue}, 0, {id}, {_task()}"
            f" FROM {many} WHERE n % 10 < 7",
            **given,
            **({"now": multiply.now} if ":now" in id else {}),
        )
        tx.run(
            f"INSERT INTO {{scheduled}} (due_at, job_id, queue, tier, task)"
            f" SELECT :now + 86400000000 + n * 1000, {id}, {queue}, 0, {_task()} FROM {many} WHERE n % 10 >= 7",
            **given,
            now=multiply.now,
        )

    app.database.in_transaction(queued)


def _runs(multiply: Multiplied, small: str, count: int) -> None:
    """Finished ones, and of every thousand one that goes on; each has the two steps of the first."""
    span = WEEK // max(1, count)
    made = f":now - CAST({WEEK} - n * {span} AS bigint)"
    run = time_ordered_id("4", span)
    status = "CASE WHEN n % 1000 = 0 THEN 'running' WHEN n % 50 = 0 THEN 'failed' ELSE 'succeeded' END"
    ended = f"CASE WHEN n % 1000 = 0 THEN NULL ELSE {made} + 1000000 END"
    multiply("runs", small, count, id=run, status=status, created_at=made, started_at=made, ended_at=ended)
    steps = [
        str(row[0])
        for row in multiply.app.database.read(
            lambda tx: tx.rows("SELECT id FROM {jobs} WHERE run_id = :run ORDER BY id", run=small)
        )
    ]
    for place, step in enumerate(steps):
        id = time_ordered_id(str(5 + place), span)
        multiply("jobs", step, count, id=id, run_id=run, created_at=made)
        multiply("job_states", step, count, job_id=id, claimed_at=made, finished_at=f"{made} + 60000")
        multiply("executions", step, count, job_id=id, started_at=made, finished_at=f"{made} + 60000")


def _elements(multiply: Multiplied, fan: str, count: int) -> None:
    """The only element of the run, so often; its list stays as short as it was."""
    found = multiply.app.database.read(
        lambda tx: tx.rows("SELECT id FROM {jobs} WHERE run_id = :run AND path <> ''", run=fan)
    )
    element = str(found[0][0])
    id, made = time_ordered_id("8", 1000), ":now - 3600000000 + n * 1000"
    multiply("jobs", element, count, id=id, path=_path(), created_at=made)
    multiply("job_states", element, count, job_id=id, claimed_at=made, finished_at=f"{made} + 60000")
    multiply("executions", element, count, job_id=id, started_at=made, finished_at=f"{made} + 60000")
    multiply.app.database.in_transaction(
        lambda tx: tx.run(
            "UPDATE {joins} SET width = :count WHERE run_id = :run AND width = 1", count=count + 1, run=fan
        )
    )


def fill_rollups(tx: Transaction) -> None:
    """All roll-ups that are kept, as a busy installation has them: a row for each task and outcome of each moment."""
    for table in ("rollups", "queue_samples"):
        tx.run(f"DELETE FROM {{{table}}}")
    for span in RollupSpan:
        moments = f"generate_series(0, {int(span.kept * 1_000_000 / span.micros) - 1}) AS m"
        begins = f"CAST({{now}} - {{now}} % {span.micros} - CAST({span.micros} AS bigint) * m AS bigint)"
        tx.run(
            "INSERT INTO {rollups} (span, begins_at, task, queue, outcome, attempts, failed, run_micros, longest)"
            f" SELECT :span, {begins}, 'shop.task-' || t, 'queue-' || t % {QUEUES}, o,"
            "  50 + m * t % 97, CASE WHEN o = 'errored' THEN 1 ELSE 0 END, 900000, 60000"
            f" FROM {moments}, generate_series(0, {ROLLED_TASKS - 1}) AS t,"
            "  unnest(ARRAY['succeeded', 'errored', 'retried']) AS o",
            span=span.value,
        )
        tx.run(
            "INSERT INTO {queue_samples} (span, begins_at, queue, available, lag)"
            f" SELECT :span, {begins}, 'queue-' || q, 100 * q, 1000000 * q"
            f" FROM {moments}, generate_series(0, {QUEUES - 1}) AS q",
            span=span.value,
        )


def _own(table: str, id: str, made: str) -> dict[str, str]:
    key = "id" if table == "jobs" else "job_id"
    times = dict.fromkeys(("created_at", "claimed_at", "started_at"), made)
    return {key: id} | times | dict.fromkeys(("finished_at", "failed_at"), f"{made} + 60000")


def _task() -> str:
    return f"'shop.task-' || n % {TASKS}"


def time_ordered_id(mark: str, span: int) -> str:
    """A time-ordered id: milliseconds of the row's time, then the kind of row, then its number."""
    millis = (
        f"(:now - {WEEK} + n * {span}) / 1000"
        if mark not in "38"
        else f"(:now - 3600000000 + n * {span}) / 1000"
    )
    return (
        f"CAST(lpad(to_hex(CAST({millis} AS bigint)), 12, '0') || '7000' || '8{mark}00' ||"
        f" lpad(to_hex(n), 12, '0') AS uuid)"
    )


def _path() -> str:
    """Paths of elements 1, 2, …"""
    return "lpad(to_hex(n), 8, '0')"
