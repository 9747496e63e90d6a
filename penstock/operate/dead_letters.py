"""Dead letters: jobs whose budget is spent. An operator can look at them, run them again, or discard them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

from penstock.app_services import AppServices
from penstock.database.transaction import Transaction
from penstock.errors import ConfigurationError
from penstock.job import Job
from penstock.operate import actions
from penstock.values.parse import nearest
from penstock.values.plain import counted
from penstock.values.status import Reason

LIST = """
SELECT d.job_id, d.task, d.queue, d.reason, d.failed_at, e.error_type, e.error
FROM {dead_letters} d JOIN {job_states} s ON s.job_id = d.job_id
LEFT JOIN {executions} e ON e.job_id = d.job_id AND e.generation = s.generation
"""
ORDER = " ORDER BY d.failed_at DESC, d.job_id DESC LIMIT :limit"
IDS = "SELECT d.job_id FROM {dead_letters} d"
IDS_ORDER = " ORDER BY d.failed_at DESC, d.job_id DESC"
BY_REASON = """
SELECT task, reason, COUNT(*) FROM (SELECT task, reason FROM {dead_letters} LIMIT :limit) counted
GROUP BY task, reason ORDER BY COUNT(*) DESC
"""
ALL = 2**62


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter in a list. `failed_at` in microseconds by the database's clock."""

    id: str
    task: str
    queue: str
    reason: str
    failed_at: int
    error: str | None


class DeadLetters(Sequence[Job[Any]]):
    """Failed jobs, the latest first: a list that can be retried or discarded as a whole."""

    def __init__(self, host: AppServices, ids: Sequence[str]) -> None:
        self._host = host
        self._ids = ids

    @overload
    def __getitem__(self, index: int) -> Job[Any]: ...

    @overload
    def __getitem__(self, index: slice) -> DeadLetters: ...

    def __getitem__(self, index: int | slice) -> Job[Any] | DeadLetters:
        if isinstance(index, slice):
            return DeadLetters(self._host, self._ids[index])
        return Job(self._host, self._ids[index])

    def __len__(self) -> int:
        return len(self._ids)

    def retry(self) -> int:
        """Run all of them again, with fresh budgets; returns how many will run."""
        return len(actions.retry(self._host, self._ids))

    async def retry_async(self) -> int:
        return await self._host.bridge.run(self.retry)

    def discard(self) -> int:
        """Take all of them off the list for good; returns how many were still on it."""
        return len(actions.discard(self._host, self._ids))

    async def discard_async(self) -> int:
        return await self._host.bridge.run(self.discard)

    def __repr__(self) -> str:
        return f"<{counted(len(self), 'dead letter')}>"


def dead_letters(
    tx: Transaction, task: str | None, queue: str | None, reason: str | None, limit: int
) -> list[Letter]:
    """The latest dead letters, with their last error."""
    where, values = _where(task, queue, reason)
    return [
        Letter(str(id), task, queue, reason, failed_at, f"{kind}: {error}" if kind else None)
        for id, task, queue, reason, failed_at, kind, error in tx.rows(
            LIST + where + ORDER, limit=limit, **values
        )
    ]


def dead_ids(
    tx: Transaction, task: str | None, queue: str | None, reason: str | None, limit: int | None
) -> list[str]:
    """The ids of dead letters; `limit` None: all of them."""
    where, values = _where(task, queue, reason)
    if limit is None:
        return [str(row[0]) for row in tx.rows(IDS + where + IDS_ORDER, **values)]
    return [str(row[0]) for row in tx.rows(IDS + where + ORDER, limit=limit, **values)]


def by_reason(tx: Transaction, limit: int = ALL) -> list[tuple[str, str, int]]:
    """Count dead letters as (task, reason, count), the most frequent first; at most `limit` letters are counted."""
    return [(task, reason, int(count)) for task, reason, count in tx.rows(BY_REASON, limit=limit)]


def _where(task: str | None, queue: str | None, reason: str | None) -> tuple[str, dict[str, object]]:
    if reason is not None and reason not in list(Reason):
        raise ConfigurationError(f"there is no reason {reason!r}{nearest(str(reason), list(Reason))}")
    named = {"task": task, "queue": queue, "reason": reason}
    values: dict[str, object] = {name: str(value) for name, value in named.items() if value is not None}
    conditions = " AND ".join(f"d.{name} = :{name}" for name in values)
    return (f" WHERE {conditions}" if conditions else ""), values
