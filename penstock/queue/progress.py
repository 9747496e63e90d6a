"""How far running jobs say they are."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.database.transaction import Transaction

UPDATE = (
    "UPDATE {progress} SET fraction = :fraction, message = :message, updated_at = {now} WHERE job_id = :id"
)


def record(tx: Transaction, reports: Mapping[str, tuple[float, str]]) -> None:
    tx.stage("progress")
    for job_id, (fraction, message) in sorted(reports.items()):
        if tx.count(UPDATE, id=job_id, fraction=fraction, message=message) == 0:
            row = {"job_id": job_id, "fraction": fraction, "message": message}
            tx.insert("progress", [row], ignore_duplicates=True, updated_at="{now}")
