"""Counts of rows processed, failed and lost, per process, written now and then, for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.database.transaction import Transaction

FORGET = "DELETE FROM {reconciler_counts} WHERE process_id = :process AND reconciler {among:names:text}"
FORGET_GONE = "DELETE FROM {reconciler_counts} WHERE updated_at < {now} - :age"
FORGET_FAILURES = "DELETE FROM {row_failures} WHERE failed_at < {now} - :age"
DAY = 86_400_000_000


def row(name: str, counts: Mapping[str, int], before: Mapping[str, int], seconds: float) -> dict[str, Any]:
    done = {kind: counts.get(kind, 0) for kind in ("processed", "failed", "lost")}
    recent = sum(done[kind] - before.get(kind, 0) for kind in ("processed", "failed"))
    return {"reconciler": name, **done, "rate": recent / max(seconds, 0.001)}


def write(tx: Transaction, process: str, rows: Sequence[dict[str, Any]]) -> None:
    tx.stage("tally_rows")
    tx.run(FORGET, process=process, names=[one["reconciler"] for one in rows])
    tx.insert("reconciler_counts", [one | {"process_id": process} for one in rows], updated_at="{now}")


def forget_gone(tx: Transaction) -> None:
    """Delete the counts of processes that are gone, and failures of rows that were not tried again for a week."""
    tx.run(FORGET_GONE, age=DAY)
    tx.run(FORGET_FAILURES, age=7 * DAY)
