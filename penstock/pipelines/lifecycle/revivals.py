"""Records which run continues a run. A run is revived once: by a caller or by its parent's revival, whichever is first.

The key that says so is unique, so one of two transactions at the same time waits for the other and finds its row. A run
that has taken its own key is being pruned: it can be revived no more.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.values.ids import read_id
from penstock.values.status import RunStatus

HOLDER = "SELECT run_id FROM {run_keys} WHERE pipeline = :pipeline AND run_key = :key {lock}"
NEWEST = """
SELECT r.id, r.definition, r.status FROM {run_keys} k JOIN {runs} r ON r.id = k.run_id
WHERE k.pipeline = :pipeline AND k.run_key = :key
"""


class Revival(NamedTuple):
    """A run that continues another."""

    id: str
    definition: str
    status: RunStatus


def claim_revival(tx: Transaction, pipeline: str, old: str, new: str) -> str:
    """Record which run continues the old one: the new run, unless there is one already; returns its id."""
    key = key_of(old)
    tx.insert("run_keys", [{"pipeline": pipeline, "run_key": key, "run_id": new}], ignore_duplicates=True)
    holder = tx.row(HOLDER, pipeline=pipeline, key=key)
    return new if holder is None else read_id(holder[0])


def is_being_pruned(tx: Transaction, pipeline: str, run: str) -> bool:
    """True if some of the run's steps are gone already. The caller holds the run's row."""
    holder = tx.row(HOLDER, pipeline=pipeline, key=key_of(run))
    return holder is not None and read_id(holder[0]) == run


def newest(tx: Transaction, pipeline: str, run: str) -> Revival | None:
    """The latest revival of a run; None if it was never revived."""
    found: Revival | None = None
    while (row := tx.row(NEWEST, pipeline=pipeline, key=key_of(run))) is not None and str(row[0]) != run:
        run = str(row[0])
        found = Revival(run, str(row[1]), RunStatus.stored(row[2]))
    return found


def key_of(run: str) -> str:
    """The key that the run which continues this one has taken."""
    return f"@revived:{run}"
