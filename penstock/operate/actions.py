"""Acts on many jobs in batches, each in a transaction of its own, and reports after each batch.

An action that is interrupted has done its first batches completely, and can simply be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.app_services import AppServices
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.pipelines.maintenance import retention as run_retention
from penstock.queue import audit, control, retention
from penstock.queue.wakeups import ENDED, READY
from penstock.values.ids import FIRST_ID, new_id

BATCH = 500

Progress = Callable[[int], None]
"""Called after each batch with the number of jobs or runs that the batch dealt with."""


def ignore_progress(_done: int) -> None:
    """The default: for callers that only want the result."""


def cancel(host: AppServices, ids: Sequence[str], progress: Progress = ignore_progress) -> list[str]:
    """Cancel jobs; returns the ids of those that will end cancelled."""
    done = _in_batches(host.database, ids, lambda: control.cancelling(host.follow, host.events), progress)
    if done:
        host.wakeups.notify(ENDED)
    return done


def retry(host: AppServices, ids: Sequence[str], progress: Progress = ignore_progress) -> list[str]:
    """Run failed or cancelled jobs again, with fresh budgets; returns the ids of those that will run."""
    done = _in_batches(host.database, ids, control.retrying, progress)
    if done:
        host.wakeups.notify(READY)
    return done


def discard(host: AppServices, ids: Sequence[str], progress: Progress = ignore_progress) -> list[str]:
    """Take failed jobs off the list of dead letters for good; returns the ids of those that were on it."""
    return _in_batches(host.database, ids, control.discarding, progress)


def prune(database: Database, age: float, progress: Progress = ignore_progress) -> int:
    """Remove all finished work older than `age` seconds; returns how many jobs and runs were removed."""
    removed, after = 0, FIRST_ID
    act = new_id()

    def some_runs(tx: Transaction) -> tuple[int, bool]:
        count, more = run_retention.prune(tx, age)
        if more:
            audit.count(tx, act, "prune", count, older_than=age)
        return count, more

    def some_jobs(tx: Transaction) -> tuple[int, str | None]:
        count, reached = retention.prune(tx, age, after, BATCH)
        if count:
            audit.count(tx, act, "prune", count, older_than=age)
        return count, reached

    more = True
    while more:
        count, more = database.in_transaction(some_runs)
        removed += count
        progress(count)
    reached: str | None = after
    while reached is not None:
        after = reached
        count, reached = database.in_transaction(some_jobs)
        removed += count
        progress(count)
    return removed


def _in_batches(
    database: Database,
    ids: Sequence[str],
    action: Callable[[], control.Action],
    progress: Progress,
) -> list[str]:
    done: list[str] = []
    for start in range(0, len(ids), BATCH):
        some = ids[start : start + BATCH]
        done += database.in_transaction(action(), some)
        progress(len(some))
    return done
