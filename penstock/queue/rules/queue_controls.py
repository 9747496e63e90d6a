"""Controls of queues: which are paused, and which queues workers take from. Durable rows that workers read.

One more row has a value that is new whenever a process was asked for its stacks: all workers hear of it this way.

A row stays when its control is lifted, and each change adds one to its revision. So the sum of all revisions differs
after every change: a worker reads the sum along with other statements, and reads the rows only if the sum has changed.
A revision that is out of range (a person changed it) counts as 0 and starts again with the next change, so that no sum
overflows.

A value that cannot be read is ignored: workers go on as if that row did not exist, and log it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.database.transaction import Transaction
from penstock.queue import audit
from penstock.values.actor import actor
from penstock.values.ids import new_id
from penstock.values.parse import QueueLimit, parse_queues

PAUSE = "pause"
"""Of a queue: no worker claims from it."""
WORKERS = "workers"
"""Of a host, or of all of them: the queues that its workers take from."""
STACKS = "stacks"
"""Of all workers: some process is asked for its stacks (`queue/stack_dumps.py`)."""
EVERYWHERE = "*"
"""In place of a host."""
PAUSED = "paused"
LIFTED = ""
"""The value of a control that was lifted."""
ALL_QUEUES = "all"

MOST_CHANGES = 2_000_000_000
SOUND = f"revision BETWEEN 0 AND {MOST_CHANGES}"
REVISION = f"(SELECT COALESCE(SUM(CASE WHEN {SOUND} THEN revision ELSE 0 END), 0) FROM {{queue_controls}})"
READ = f"SELECT kind, name, value, {REVISION} FROM {{queue_controls}} WHERE value <> ''"
REVISED = f"SELECT {REVISION}"
LIST = """
SELECT name, value, changed_at, changed_by, why FROM {queue_controls} WHERE kind = :kind AND value <> '' ORDER BY name
"""
CHANGE = f"""
UPDATE {{queue_controls}} SET value = :value, revision = CASE WHEN {SOUND} THEN revision + 1 ELSE 1 END,
  changed_at = {{now}}, changed_by = :by, why = :why
WHERE kind = :kind AND name = :name AND value <> :value
"""


@dataclass(frozen=True, slots=True)
class QueueControls:
    """All controls in force, as a worker follows them."""

    revision: int = 0
    paused: frozenset[str] = frozenset()
    assigned: Mapping[str, Sequence[QueueLimit] | None] = field(default_factory=dict)
    """By host, the queues of its workers; None: all queues."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """By host, what is wrong with a control of its workers that is ignored."""
    stacks: str = ""
    """The latest request for stacks."""

    def queues_for(self, host: str, started_with: Sequence[QueueLimit] | None) -> Sequence[QueueLimit] | None:
        """The queues for a worker of this host, which was started with others. None: all queues."""
        for name in (host, EVERYWHERE):
            if name in self.assigned:
                return self.assigned[name]
        return started_with


@dataclass(frozen=True, slots=True)
class QueueControl:
    """One control in force: since when, by whom, and why. Times are microseconds by the database's clock."""

    name: str
    value: str
    changed_at: int
    changed_by: str
    why: str


def read(tx: Transaction) -> QueueControls:
    """The controls in force now, all read at one moment."""
    rows = tx.rows(READ)
    if not rows:
        found = tx.row(REVISED)
        return QueueControls(int(found[0]) if found is not None else 0)
    paused = frozenset(str(name) for kind, name, *_ in rows if kind == PAUSE)
    assigned, unreadable = _assigned((str(row[1]), str(row[2])) for row in rows if row[0] == WORKERS)
    stacks = [str(value) for kind, _, value, _ in rows if kind == STACKS]
    return QueueControls(int(rows[0][3]), paused, assigned, unreadable, "".join(stacks))


def _assigned(
    rows: Iterable[tuple[str, str]],
) -> tuple[dict[str, Sequence[QueueLimit] | None], dict[str, str]]:
    """By host, the queues of its workers; and by host, what is wrong with a value that cannot be read."""
    assigned: dict[str, Sequence[QueueLimit] | None] = {}
    unreadable: dict[str, str] = {}
    for host, value in rows:
        try:
            assigned[host] = None if value == ALL_QUEUES else parse_queues(value)
        except ValueError as error:
            unreadable[host] = f"{value!r:.200}: {error}"
    return assigned, unreadable


def listed(tx: Transaction, kind: str = PAUSE) -> list[QueueControl]:
    """The controls of a kind that are in force, by name."""
    return [QueueControl(*row) for row in tx.rows(LIST, kind=kind)]


def pause(tx: Transaction, queue: str, why: str | None = None) -> bool:
    """Have no worker claim from this queue. False: it is paused already."""
    return _change(tx, "pause_queue", PAUSE, queue, PAUSED, why)


def resume(tx: Transaction, queue: str, why: str | None = None) -> bool:
    """Have workers claim from this queue again. False: it was not paused."""
    return _change(tx, "resume_queue", PAUSE, queue, LIFTED, why)


def assign(tx: Transaction, host: str | None, queues: str | None, why: str | None = None) -> bool:
    """Give the workers of a host, or of all hosts, other queues than they were started with; None: those again."""
    return _change(tx, "set_queues", WORKERS, host or EVERYWHERE, queues or LIFTED, why)


def call_for_stacks(tx: Transaction) -> None:
    """Have every worker check whether its stacks were asked for."""
    _set(tx, STACKS, EVERYWHERE, new_id(), None)


def _change(tx: Transaction, act: str, kind: str, name: str, value: str, why: str | None) -> bool:
    changed = _set(tx, kind, name, value, why)
    if changed:
        subject = {"queue": name} if kind == PAUSE else {"host": name, "queues": value or None}
        audit.of_queue(tx, act, why, **subject)
    return changed


def _set(tx: Transaction, kind: str, name: str, value: str, why: str | None) -> bool:
    tx.stage("control")
    by, told = actor()
    if value != LIFTED:
        row = {"kind": kind, "name": name, "value": LIFTED, "revision": 0, "changed_by": by, "why": ""}
        tx.insert("queue_controls", [row], ignore_duplicates=True, changed_at="{now}")
    given = {"kind": kind, "name": name, "value": value}
    return tx.count(CHANGE, **given, by=by, why=told or why or "") > 0
