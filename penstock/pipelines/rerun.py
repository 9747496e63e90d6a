"""Re-run: a run that has ended, once more from the beginning, as a new run that knows which one it repeats."""

from __future__ import annotations

from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused
from penstock.pipelines import labels, reading, trigger
from penstock.pipelines.current import Current
from penstock.pipelines.desk import Desk
from penstock.pipelines.trigger import NewRun
from penstock.queue import audit


def rerun(desk: Desk, tx: Transaction, old: str, new: str, current: Current, args: str | None) -> None:
    """Write the new run: with the app's definition of now, and the old run's arguments unless others are given."""
    tx.stage("rerun")
    standing = reading.standings(tx, [old]).get(old)
    if standing is None:
        raise ActionRefused(f"there is no run {old}; it may have been pruned")
    if not standing.status.terminal:
        raise ActionRefused(f"run {old} is {standing.status}: only a run that has ended can be run again")
    given, lacking = (args, []) if args is not None else current.arguments(standing.args)
    if lacking:
        raise ActionRefused(f"run {old} cannot be run again with its arguments: {lacking[0]}: give args=")
    trigger.open_runs(desk, tx, [NewRun(new, current.definition, given, rerun_of=old)])
    labels.copy(tx, old, new)
    audit.of_run(tx, "rerun", old, new_run=new, new_arguments=args is not None or None)
