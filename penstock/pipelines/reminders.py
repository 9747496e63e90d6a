"""Reminders: while a step waits for a signal, a task is enqueued again and again, each time exactly once.

A reminder is a timer. The transaction that takes it enqueues the task and sets the timer of the next one, under locks
on the step's state and on the run's row, in this order. Whoever ends the wait locks the state; whoever gives a signal,
cancels, pauses or exceeds a deadline locks the run. So it is decided, when a reminder is enqueued, that the wait is
open; and once a signal, a cancellation or a deadline is committed, nobody is reminded any more.

Times are multiples of the period from the beginning of the wait. Those that nobody was there for are left out, and so
are those of a paused run: they are not made up for.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.pipelines import answers, timers
from penstock.pipelines.changes import RunMode
from penstock.pipelines.desk import Desk, Mould
from penstock.pipelines.paths import path_of
from penstock.pipelines.reminding import arguments_text
from penstock.pipelines.runs import views
from penstock.pipelines.wait import Reminder, Wait
from penstock.queue.enqueue import enqueue
from penstock.queue.jobs import NewJob, tier_of
from penstock.settings import Settings
from penstock.values.ids import new_id
from penstock.values.jsontext import dumps, loads
from penstock.values.resume_token import Ticket, sign

SECOND = 1_000_000
SHORTEST_TOKEN = 86_400 * SECOND
"""A token that comes with a reminder is good for as long as the step waits; without a timeout, for a day or more."""

LOCK_WAIT = "SELECT 1 FROM {job_states} {by_key} WHERE job_id = :job AND status = 'waiting' {lock}"
LOCK_RUN = "SELECT mode, paused_at, ended_at, {now} FROM {runs} {by_key} WHERE id = :run {lock}"
PATH = "SELECT path FROM {jobs} WHERE id = :job"


class Due(NamedTuple):
    """A reminder whose time has come: of which step, since when that waits, and how many came before it."""

    run: str
    job: str
    node: str
    begun: int
    sent: int


def place_of(settings: Settings) -> str:
    """Where tokens are good: the tables of this installation, by the names that the settings give them."""
    return f"{settings.schema or ''}.{settings.table_prefix}"


def begin(tx: Transaction, run: str, job: str, node: str, remind: Reminder) -> None:
    """A step begins to wait: set the timer of the first reminder."""
    data = dumps([node, _micros(remind.every), 0])
    timers.set(tx, _kind(remind), run, after=remind.every, job=job, data=data)


def remind(desk: Desk, tx: Transaction, run: str, job: str, data: str, due: int) -> None:
    """A timer is due: enqueue the task if the step still waits, and set the next timer."""
    tx.stage("remind")
    found = _read(run, job, data, due)
    view = views(desk, tx, [run]).get(run)
    place = view.wiring.places.get(found.node) if view is not None else None
    wait = place.node.wait if place is not None else None
    # A run that was moved to another definition may remind nobody any more.
    if view is None or place is None or wait is None or wait.remind is None:
        return
    if tx.row(LOCK_WAIT, job=job) is None:
        return
    mode, paused_at, ended_at, now = tx.row(LOCK_RUN, run=run) or (None, None, None, 0)
    name, path = place.node.target, _path(tx, job)
    if mode != RunMode.RUNNING or ended_at is not None or answers.find(tx, run, name, path) is not None:
        return
    if _is_over(wait, now - found.begun):
        return
    _set_next(tx, found, wait, wait.remind, now, paused=paused_at is not None)
    if paused_at is None:
        told = {
            "run_id": run,
            "pipeline": view.pipeline,
            "signal": name,
            "step": found.node,
            "path": list(path_of(path)),
            "count": found.sent + 1,
            "token": _token(desk.host.settings, found, name, path, _expiry(wait, found.begun, now)),
        }
        _enqueue(desk, tx, wait.remind, found, told)


def _set_next(tx: Transaction, due: Due, wait: Wait, remind: Reminder, now: int, *, paused: bool) -> None:
    every = _micros(remind.every)
    waited = every * ((now - due.begun) // every + 1)
    if _is_over(wait, waited):
        return
    data = dumps([due.node, waited, due.sent if paused else due.sent + 1])
    timers.set(tx, _kind(remind), due.run, at=due.begun + waited, job=due.job, data=data)


def _enqueue(desk: Desk, tx: Transaction, remind: Reminder, due: Due, told: dict[str, object]) -> None:
    mould = Mould.of(remind.callback.task, remind.callback.job)
    job = NewJob(
        id=new_id(),
        task=mould.task,
        queue=mould.queue,
        priority=mould.priority,
        payload=arguments_text(remind.callback, told),
        options=mould.options,
        max_crashes=mould.max_crashes,
        delay=remind.callback.delay,
        key=f"remind:{due.job}:{due.sent + 1}",
    )
    enqueue(tx, [job])
    desk.trace(tx).made[job.id] = (job.queue, tier_of(job.priority))
    desk.tell_ready(tx)


def _token(settings: Settings, due: Due, name: str, path: str, expires: int) -> str | None:
    if settings.secret is None:
        return None
    return sign(settings.secret, place_of(settings), Ticket(due.run, name, path_of(path), expires))


def _expiry(wait: Wait, begun: int, now: int) -> int:
    assert wait.remind is not None
    if wait.timeout is not None:
        return begun + _micros(wait.timeout)
    return now + max(SHORTEST_TOKEN, 2 * _micros(wait.remind.every))


def _is_over(wait: Wait, waited: int) -> bool:
    return wait.timeout is not None and waited >= _micros(wait.timeout)


def _kind(remind: Reminder) -> str:
    return timers.REMIND_SIGNED if remind.signs else timers.REMIND


def _micros(seconds: float) -> int:
    return max(1, int(seconds * SECOND))


def _path(tx: Transaction, job: str) -> str:
    row = tx.row(PATH, job=job)
    return str(row[0] or "") if row is not None else ""


def _read(run: str, job: str, data: str, due: int) -> Due:
    told = loads(data)
    assert isinstance(told, list)
    node, waited, sent = told
    return Due(run, job, str(node), due - int(str(waited)), int(str(sent)))
