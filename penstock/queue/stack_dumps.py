"""Stacks of processes on demand: an operator asks by a row, the process answers in it. Kept for an hour.

A request also changes a control that every worker reads anyway (`rules/queue_controls.py`), and its wake-up tells them:
an idle process makes no statement more. A process that does not answer is frozen, gone, or cannot reach the database.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.database.transaction import Transaction
from penstock.queue import audit
from penstock.queue.rules import queue_controls
from penstock.values.actor import actor

KEPT = 3600.0
"""Seconds for which a request and its answer are kept."""
ASK = """
UPDATE {stack_dumps} SET asked_at = {now}, asked_by = :by, answered_at = NULL, stacks = NULL WHERE process_id = :id
"""
WANTED = "SELECT 1 FROM {stack_dumps} WHERE process_id = :id AND answered_at IS NULL"
ANSWER = """
UPDATE {stack_dumps} SET answered_at = {now}, stacks = :stacks WHERE process_id = :id AND answered_at IS NULL
"""
FIND = """
SELECT asked_at, asked_by, answered_at, stacks, ({now} - asked_at) / 1000000.0 FROM {stack_dumps} WHERE process_id = :id
"""
OLD = "DELETE FROM {stack_dumps} WHERE asked_at < {now} - :age"


@dataclass(frozen=True, slots=True)
class StackDump:
    """A request for the stacks of a process, and its answer. Times in microseconds; `age` in seconds."""

    asked_at: int
    asked_by: str
    answered_at: int | None
    stacks: str | None
    age: float


def ask(tx: Transaction, process: str) -> None:
    """Ask a process for its stacks, and forget what it answered before."""
    tx.stage("ask_stacks")
    by, _ = actor()
    row = {"process_id": process, "asked_by": by}
    tx.insert("stack_dumps", [row], ignore_duplicates=True, asked_at="{now}")
    tx.run(ASK, id=process, by=by)
    queue_controls.call_for_stacks(tx)
    audit.of_process(tx, "ask_stacks", process)


def is_wanted(tx: Transaction, process: str) -> bool:
    """True if the stacks of this process were asked for and not yet answered."""
    return tx.row(WANTED, id=process) is not None


def answer(tx: Transaction, process: str, stacks: str) -> bool:
    """Answer a request. False: there is none that waits."""
    tx.stage("answer_stacks")
    return tx.count(ANSWER, id=process, stacks=stacks) > 0


def find(tx: Transaction, process: str) -> StackDump | None:
    """The latest request for the stacks of a process."""
    row = tx.row(FIND, id=process)
    if row is None:
        return None
    asked_at, asked_by, answered_at, stacks, age = row
    return StackDump(asked_at, asked_by, answered_at, stacks, float(age))


def prune(tx: Transaction) -> None:
    """Remove what was asked for too long ago."""
    tx.stage("prune_stacks")
    tx.run(OLD, age=int(KEPT * 1_000_000))
