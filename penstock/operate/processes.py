"""Live processes, and which of them would take ready work: those that are on its queue and know its task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.app_services import AppServices
from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused
from penstock.operate.jobs import COLUMNS, ORDER, THESE, JobRow, UnknownId, job_of
from penstock.queue import processes, stack_dumps, unknown_tasks
from penstock.queue.jobs import jobs_of_receipt
from penstock.queue.unknown_tasks import KNOWS
from penstock.queue.wakeups import CONTROLS
from penstock.values.parse import parse_queues

# Live processes: how long ago each was heard of, and how many jobs it holds.

ALL = "all"
LIST = """
SELECT id, host, pid, role, supervisor_id, details, started_at, heartbeat_at, {now}, reap_after
FROM {processes} ORDER BY started_at, id
"""
CLAIMS = "SELECT process_id, job_ids FROM {claims}"
CLAIMS_OF = "SELECT job_ids FROM {claims} WHERE process_id = :process"
OF_PROCESS = " AND s.status = 'running' AND s.process_id = :process"
ROLE = "SELECT role FROM {processes} WHERE id = :id"
SUPERVISOR = "supervisor"
MOST_HELD = 200
HELD = """
SELECT process_id, COUNT(*) FROM {job_states} WHERE job_id {among:ids:uuid} AND status = 'running'
GROUP BY process_id
"""


@dataclass(frozen=True, slots=True)
class ProcessRow:
    """A process. `age` and `silence` in seconds by the database's clock; `holding`: how many jobs it has claimed.
    `reap_after`: after this silence the process is declared dead; None: its row does not say."""

    id: str
    host: str
    pid: int
    role: str
    supervisor_id: str | None
    details: object
    started_at: int
    age: float
    silence: float
    holding: int
    reap_after: float | None

    def is_silent(self, reap_after: float, share: float = 1.0) -> bool:
        """True if it was silent for longer than this share of its own `reap_after`, or of the given one if its row has
        none."""
        return self.silence > share * (self.reap_after or reap_after)

    def attends(self, queue: str) -> bool:
        """True if it takes jobs from this queue, by the details in its row."""
        told = str(self.details.get("queues", ALL)) if isinstance(self.details, dict) else ALL
        named = told == ALL or queue in [each.name for each in parse_queues(told)]
        return self.role in ("all", "worker") and named


def list_processes(tx: Transaction) -> list[ProcessRow]:
    """All processes that have a row, oldest first; a supervisor is followed by its children."""
    held = _held(tx)
    found = [
        ProcessRow(
            str(id),
            host,
            pid,
            role,
            supervisor,
            _details(details),
            started,
            (now - started) / 1e6,
            (now - heard) / 1e6,
            held[str(id)],
            None if reap_after is None else reap_after / 1e6,
        )
        for id, host, pid, role, supervisor, details, started, heard, now, reap_after in tx.rows(LIST)
    ]
    ids = {process.id for process in found}
    heads = [process for process in found if process.supervisor_id not in ids]
    return [member for head in heads for member in (head, *_children(found, head))]


def held_jobs(tx: Transaction, process: str, limit: int = MOST_HELD) -> list[JobRow]:
    """The jobs that a process holds, newest first."""
    ids = {id for (held,) in tx.rows(CLAIMS_OF, process=process) for id in jobs_of_receipt(held) or ()}
    if not ids:
        return []
    rows = tx.rows(COLUMNS + THESE + OF_PROCESS + ORDER, ids=sorted(ids), process=process, limit=limit)
    return [job_of(row) for row in rows]


def ask_for_stacks(host: AppServices, process: str) -> None:
    """Ask a process for its stacks; it answers within moments, if it can answer at all."""
    host.database.in_transaction(_ask, process)
    host.wakeups.notify(CONTROLS)


def _ask(tx: Transaction, process: str) -> None:
    role = tx.row(ROLE, id=process)
    if role is None:
        raise UnknownId(f"there is no process {process}: it has ended, or never existed")
    if role[0] == SUPERVISOR:
        raise ActionRefused("a supervisor does not answer: on its host, kill -USR1 shows its stacks")
    stack_dumps.ask(tx, process)


def unattended(tx: Transaction, queues: Iterable[str], reap_after: float) -> list[str]:
    """The queues from which no live process takes jobs; empty, if there are no processes."""
    there = [process for process in living(tx, reap_after) if process.role != "supervisor"]
    return [queue for queue in queues if there and not any(process.attends(queue) for process in there)]


def living(tx: Transaction, reap_after: float) -> list[ProcessRow]:
    """The processes that are not silent for too long."""
    return [process for process in list_processes(tx) if not process.is_silent(reap_after)]


def _details(text: str) -> object:
    """The details of a process that an operator can use: all but the list of its tasks."""
    return {name: value for name, value in processes.read_details(text).items() if name != KNOWS}


def _children(found: list[ProcessRow], head: ProcessRow) -> list[ProcessRow]:
    return [process for process in found if process.supervisor_id == head.id]


def _held(tx: Transaction) -> Counter[str]:
    ids = sorted({id for _, job_ids in tx.rows(CLAIMS) for id in jobs_of_receipt(job_ids) or ()})
    held: Counter[str] = Counter()
    for start in range(0, len(ids), 1000):
        for process, count in tx.rows(HELD, ids=ids[start : start + 1000]):
            held[str(process)] += int(count)
    return held


def obstacles(tx: Transaction, work: Iterable[tuple[str, str]], reap_after: float) -> list[str]:
    """Say why no worker takes ready work, given as (task, queue); empty if some worker would take it."""
    workers = [process for process in living(tx, reap_after) if process.role in ("all", "worker")]
    if not workers:
        return ["no worker is running"]
    found: dict[str, None] = {}
    knowing = unknown_tasks.knowing(tx)
    for task, queue in work:
        there = [process for process in workers if process.attends(queue)]
        if not there:
            found[f"no live worker takes from queue {queue!r}"] = None
        elif not any(knowing(process.id, task) for process in there):
            found[f"no live worker of queue {queue!r} knows task {task!r}"] = None
    return list(found)
