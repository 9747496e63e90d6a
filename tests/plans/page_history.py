"""Years of finished work for pages to pass by: rows that workers have made, multiplied by SQL, on any database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock import Penstock
from penstock.database.transaction import Transaction
from penstock.testing import drain

KEYS = {"jobs": "id", "runs": "id"}
OF_JOBS = ("jobs", "job_states", "executions")
NUMBERS = {
    "postgresql": "generate_series({0}, {1}) AS numbers(n)",
    "mysql": "(SELECT seq AS n FROM seq_{0}_to_{1}) AS numbers",
    "sqlite": "(WITH RECURSIVE up(n) AS (SELECT {0} UNION ALL SELECT n + 1 FROM up WHERE n < {1}) SELECT n FROM up)",
}
HEX = {
    "postgresql": "lpad(to_hex(n), {0}, '0')",
    "mysql": "LPAD(LOWER(HEX(n)), {0}, '0')",
    "sqlite": "printf('%0{0}x', n)",
}
TEXT = {"postgresql": "CAST({0} || {1} AS uuid)", "mysql": "CONCAT({0}, {1})", "sqlite": "{0} || {1}"}


@dataclass(frozen=True, slots=True)
class History:
    job: str
    dead: str
    run: str
    large_run: str


def make_history(app: Penstock, rows: int) -> History:
    """Finished work, made by a worker, and multiplied by so many."""
    history = History(*_examples(app))
    add_history(app, history, 1, rows)
    return history


def add_history(app: Penstock, history: History, first: int, last: int) -> None:
    """Rows with these numbers: finished jobs, dead letters, runs with a step each, and elements of one run.

    All of them are older than the first of each kind.
    """
    step, element = _step(app, history.run, ""), _step(app, history.large_run, "00000000")
    copies = _Copies(app, first, last)
    copies.add(OF_JOBS, history.job, copies.id(1))
    copies.add((*OF_JOBS, "dead_letters"), history.dead, copies.id(2), failed_at="failed_at - n")
    copies.add(("runs",), history.run, copies.id(3))
    copies.add(OF_JOBS, step, copies.id(4), run_id=copies.id(3))
    copies.add(OF_JOBS, element, copies.id(5), path=copies.hexadecimal(8))


class _Copies:
    """Copies one row many times, with other values in some columns."""

    def __init__(self, app: Penstock, first: int, last: int) -> None:
        self.app = app
        self.kind = app.database.dialect.name
        self.numbers = NUMBERS[self.kind].format(first, last)

    def id(self, mark: int) -> str:
        """Ids of one kind of row, in the order of their numbers."""
        return TEXT[self.kind].format(f"'01900000-0000-7000-8{mark}00-'", self.hexadecimal(12))

    def hexadecimal(self, digits: int) -> str:
        return HEX[self.kind].format(digits)

    def add(self, tables: tuple[str, ...], like: str, id: str, **other: str) -> None:
        for table in tables:
            self.app.database.in_transaction(self._add, table, like, {KEYS.get(table, "job_id"): id} | other)

    def _add(self, tx: Transaction, table: str, like: str, other: dict[str, str]) -> None:
        names = list(tx.column_types[table])
        other = {name: value for name, value in other.items() if name in names}
        values = ", ".join(other.get(name, name) for name in names)
        one = f"(SELECT * FROM {{{table}}} WHERE {KEYS.get(table, 'job_id')} = :like) AS one"
        tx.run(
            f"INSERT INTO {{{table}}} ({', '.join(names)}) SELECT {values} FROM {one} CROSS JOIN {self.numbers}",
            like=like,
        )


def _examples(app: Penstock) -> tuple[str, str, str, str]:
    @app.task(name="done")
    def work(number: int) -> int:
        return number

    @app.task(name="broken", retries=0)
    def broken(number: int) -> int:
        raise ValueError(f"order {number}")

    @app.task(name="listed")
    def listed(count: int) -> list[int]:
        return list(range(count))

    @app.task(name="total")
    def total(values: list[int]) -> int:
        return len(values)

    @app.pipeline(name="small")
    def small(number: int) -> Any:
        return work(number)

    @app.pipeline(name="fan")
    def fan(count: int) -> Any:
        return total(work.map(listed(count)).collect())

    done, dead, run, large = work.enqueue(1), broken.enqueue(1), small.trigger(1), fan.trigger(1)
    drain(app)
    return done.id, dead.id, run.id, large.id


def _step(app: Penstock, run: str, path: str) -> str:
    query = "SELECT id FROM {jobs} WHERE run_id = :run AND path = :path"
    return str(app.database.read(lambda tx: tx.rows(query, run=run, path=path))[0][0])
