"""The base of the SQLite and MySQL dialects: a claim in a few plain statements, a batch insert with rows of values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from penstock.database.dialect import (
    RESERVED,
    WITHOUT_ONE_STATEMENT,
    Ahead,
    Lane,
    Parameters,
    Row,
    TableWrite,
)

if TYPE_CHECKING:
    from penstock.database.transaction import Transaction

PICK = """
SELECT seq, job_id FROM {availabilities}
WHERE queue = :queue AND tier = :tier AND seq > :floor AND task {among:tasks:text}
ORDER BY seq LIMIT :limit {lock_skip}
"""
REGISTERED = "SELECT 1 FROM {processes} WHERE id = :process"
REMOVE = "DELETE FROM {availabilities} WHERE seq {among:seqs:int}"
HOLD = """
UPDATE {job_states} {by_key} SET status = 'running', token = :token, process_id = :process,
  generation = generation + 1, claimed_at = {now}
WHERE job_id {among:ids:uuid} AND status = 'available'
"""
HELD = """
SELECT s.job_id, s.generation, s.retry_count, s.crash_count,
       j.task, j.payload, j.options, j.origin_id, j.run_id, j.node, j.path, j.max_crashes
FROM {job_states} s JOIN {jobs} j ON j.id = s.job_id
WHERE s.job_id {among:ids:uuid} AND s.token = :token
"""
RECEIPT = """
INSERT INTO {claims} (token, process_id, job_ids, claimed_at) VALUES (:token, :process, :job_ids, {now})
"""


class FailedAssumption(Exception):
    """A transaction assumed something that was not true: it is repeated without the assumption."""


class ByCursor:
    """A dialect that uses its driver's cursors, one statement after the other."""

    lateral = False
    probes_in_recursion = True
    fast_path = WITHOUT_ONE_STATEMENT
    pipelines_statements = False
    is_pooled = False
    remove = REMOVE
    """The statement by which a claim removes the jobs that it picked from the queue."""

    def close(self, driver: Any) -> None:
        driver.close()

    def connect(self, *args: Any, **named: Any) -> Any:
        """Let the driver connect."""

    def on_checkout(self, driver: Any) -> None:
        """Nothing to do."""

    def dedicate(self, driver: Any, patience: float | None) -> bool:
        """Nothing to do."""
        return False

    def go_by_index(self, tx: Transaction) -> None:
        """Nothing to do."""

    def execute(self, driver: Any, opened: object, sql: str, parameters: Parameters) -> Any:
        cursor = driver.cursor()
        cursor.execute(sql, parameters)
        return cursor

    def use_driver_cursors(self, opened: object) -> None:
        """Nothing to do: these are the cursors that we use ourselves."""

    def flush(self, opened: object) -> None:
        """Nothing to do: no statement is sent ahead."""

    def wait(self, opened: object) -> None:
        """Nothing to do: every statement was waited for."""

    def lock_patience(self, seconds: float) -> str | None:
        """Returns None: there are no row locks."""
        return None

    def is_failed_assumption(self, error: BaseException) -> bool:
        return isinstance(error, FailedAssumption)

    def assume(self, tx: Transaction, condition: str, parameters: Parameters) -> None:
        row = tx.row(f"SELECT CASE WHEN {condition} THEN 1 ELSE 0 END", **parameters)
        if row is None or not row[0]:
            raise FailedAssumption(condition)

    def assume_changed(self, tx: Transaction, update: str, expected: int, parameters: Parameters) -> None:
        if tx.count(update, **parameters) != expected:
            raise FailedAssumption(update)

    def take_ready(
        self,
        tx: Transaction,
        lanes: Sequence[Lane],
        tasks: Sequence[str],
        limit: int,
        token: int,
        process: str,
    ) -> Ahead:
        if not tx.rows(REGISTERED, process=process):
            return list
        picked = _pick(tx, lanes, tasks, limit)
        if not picked:
            return list
        ids = list(dict.fromkeys(job_id for _, _, _, job_id in picked))
        tx.run(self.remove, seqs=[seq for _, _, seq, _ in picked])
        tx.run(HOLD, ids=ids, token=token, process=process)
        held = {row[0]: row[1:] for row in tx.rows(HELD, ids=ids, token=token)}
        if held:
            receipt = to_json([job_id for job_id in ids if job_id in held]).decode()
            tx.run(RECEIPT, token=token, process=process, job_ids=receipt)
        nothing = (None,) * 11
        taken = [
            (job_id, queue, tier, seq, *held.get(job_id, nothing)) for queue, tier, seq, job_id in picked
        ]
        return lambda: taken

    def succeed(
        self, tx: Transaction, rows: Sequence[Parameters], process: str | None, finished_tokens: Sequence[int]
    ) -> Ahead:
        """Not available in one statement here: the general way is taken."""
        return list


def _pick(tx: Transaction, lanes: Sequence[Lane], tasks: Sequence[str], limit: int) -> list[Row]:
    picked: list[Row] = []
    for lane in lanes:
        room = min(limit - len(picked), lane.limit)
        if room <= 0:
            continue
        rows = tx.rows(PICK, queue=lane.queue, tier=lane.tier, floor=lane.floor, tasks=tasks, limit=room)
        picked += [(lane.queue, lane.tier, seq, job_id) for seq, job_id in rows]
    return picked


def insert_template(write: TableWrite, verb: str = "INSERT", ending: str = "") -> str:
    names = [f"{{quote}}{name}{{quote}}" if name in RESERVED else name for name in write.columns]
    columns, values = ", ".join(names), ", ".join(write.columns.values())
    return f"{verb} INTO {{{write.table}}} ({columns}) VALUES ({values}){ending}"
