"""Who would take ready work: a live process that is on its queue and knows its task."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.database.transaction import Transaction
from penstock.operate.processes import living
from penstock.queue import unknown


def obstacles(tx: Transaction, work: Iterable[tuple[str, str]], reap_after: float) -> list[str]:
    """Why nobody takes what is ready, given as tasks and their queues; nothing for what somebody would take."""
    workers = [process for process in living(tx, reap_after) if process.role in ("all", "worker")]
    if not workers:
        return ["no worker is running"]
    found: dict[str, None] = {}
    knowing = unknown.knowing(tx)
    for task, queue in work:
        there = [process for process in workers if process.attends(queue)]
        if not there:
            found[f"no live worker takes from queue {queue!r}"] = None
        elif not any(knowing(process.id, task) for process in there):
            found[f"no live worker of queue {queue!r} knows task {task!r}"] = None
    return list(found)
