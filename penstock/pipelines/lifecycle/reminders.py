"""Reminders: while a step waits for a signal, a task is enqueued again and again, each time exactly once.

A reminder is a timer. The transaction that takes it enqueues the task and sets the timer of the next one, under locks
on the step's state and on the run's row, in this order. The transaction that ends the wait locks the state; one that
gives a signal, cancels, pauses or exceeds a deadline locks the run. So it is decided, when a reminder is enqueued, that
the wait is open; and once a signal, a cancellation or a deadline is committed, no reminder is enqueued any more.

Times are multiples of the period from the beginning of the wait. Those that passed while no worker ran are left out,
and so are those of a paused run: they are not made up for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.errors import ConfigurationError, RunOver, TokenExpired, TokenSpent
from penstock.pipelines.advance import timers
from penstock.pipelines.advance.run_rows import CERTIFY, views
from penstock.pipelines.advance.state import EngineState, JobTemplate
from penstock.pipelines.define.validation import arguments_text
from penstock.pipelines.lifecycle import signal_rows
from penstock.pipelines.model.definition import Reminder, Wait
from penstock.pipelines.model.expressions import Path, path_of, path_text
from penstock.pipelines.plan.changes import RunMode
from penstock.queue import audit
from penstock.queue.enqueue import enqueue
from penstock.queue.jobs import NewJob, tier_of
from penstock.settings import Settings
from penstock.values.ids import new_id
from penstock.values.resume_token import Ticket, fingerprint, read, sign
from penstock.values.status import JobStatus
from penstock.values.typed_json.json_text import dumps, loads

SECOND = 1_000_000
SHORTEST_TOKEN = 86_400 * SECOND
"""The shortest validity of a reminder's token.

It is valid as long as the step waits; without a timeout, a day or more.
"""

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
    """The installation for which tokens are valid, by the names of its tables."""
    return f"{settings.schema or ''}.{settings.table_prefix}"


def begin(tx: Transaction, run: str, job: str, node: str, remind: Reminder) -> None:
    """A step begins to wait: set the timer of the first reminder."""
    data = dumps([node, _micros(remind.every), 0])
    timers.set(tx, _kind(remind), run, after=remind.every, job=job, data=data)


def remind(engine_state: EngineState, tx: Transaction, run: str, job: str, data: str, due: int) -> None:
    """A timer is due: enqueue the task if the step still waits, and set the next timer."""
    tx.stage("remind")
    found = _read(run, job, data, due)
    view = views(engine_state, tx, [run]).get(run)
    place = view.wiring.places.get(found.node) if view is not None else None
    wait = place.node.wait if place is not None else None
    # After a migration the run's definition may have no reminder any more.
    if view is None or place is None or wait is None or wait.remind is None:
        return
    if tx.row(LOCK_WAIT, job=job) is None:
        return
    mode, paused_at, ended_at, now = tx.row(LOCK_RUN, run=run) or (None, None, None, 0)
    name, path = place.node.target, _path(tx, job)
    if mode != RunMode.RUNNING or ended_at is not None or signal_rows.find(tx, run, name, path) is not None:
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
            "token": _token(engine_state.host.settings, found, name, path, _expiry(wait, found.begun, now)),
        }
        _enqueue(engine_state, tx, wait.remind, found, told)


def _set_next(tx: Transaction, due: Due, wait: Wait, remind: Reminder, now: int, *, paused: bool) -> None:
    every = _micros(remind.every)
    waited = every * ((now - due.begun) // every + 1)
    if _is_over(wait, waited):
        return
    data = dumps([due.node, waited, due.sent if paused else due.sent + 1])
    timers.set(tx, _kind(remind), due.run, at=due.begun + waited, job=due.job, data=data)


def _enqueue(
    engine_state: EngineState, tx: Transaction, remind: Reminder, due: Due, told: dict[str, object]
) -> None:
    template = JobTemplate.of(remind.callback.task, remind.callback.job)
    job = NewJob(
        id=new_id(),
        task=template.task,
        queue=template.queue,
        priority=template.priority,
        payload=arguments_text(remind.callback, told),
        options=template.options,
        max_crashes=template.max_crashes,
        delay=remind.callback.delay,
        key=f"remind:{due.job}:{due.sent + 1}",
    )
    enqueue(tx, [job])
    engine_state.trace(tx).made[job.id] = (job.queue, tier_of(job.priority))
    engine_state.tell_ready(tx)


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


# Resume tokens: making one for a wait of a run, and giving the signal that it allows.
#
# The lock on the run's row decides which caller gives it: under it the token's time, the run, the signals given so far
# and the
# step itself are looked at. The step's state is read, not locked; a timeout that ends a wait looks for a signal under
# the same lock before it commits (see `signals`), so one of the two sees the other.

NOW = "SELECT {now}"
LOCK = "SELECT status, mode, ended_at, {now} FROM {runs} WHERE id = :run {lock}"
WAIT_STATUSES = """
SELECT s.status FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id
WHERE j.run_id = :run AND j.node {among:nodes:text} AND j.path = :path
"""


def issue(engine_state: EngineState, tx: Transaction, run: str, name: str, path: Path, seconds: float) -> str:
    """A token for a signal that a step of this run waits for, now or later."""
    settings = engine_state.host.settings
    signal_rows.check_place(engine_state, tx, run, name, path)
    row = tx.row(NOW)
    assert row is not None
    expires = int(row[0]) + int(seconds * 1_000_000)
    return sign(secrets_of(settings), place_of(settings), Ticket(run, name, path, expires))


def ticket_of(settings: Settings, token: str) -> Ticket:
    """Read the rights that a token gives; raises `TokenForged`."""
    return read(secrets_of(settings), place_of(settings), token)


def secrets_of(settings: Settings) -> tuple[str, ...]:
    if settings.secret is None:
        raise ConfigurationError(
            "resume tokens need a secret, and none is set: Penstock(..., secret=...) or PENSTOCK_SECRET, "
            "the same for every process"
        )
    return settings.secret


class Use:
    """One use of a token. It may be repeated after a lost answer: it then finds its own signal."""

    def __init__(self, engine_state: EngineState, token: str, value: str) -> None:
        self.engine_state = engine_state
        self.ticket = ticket_of(engine_state.host.settings, token)
        self.fingerprint = fingerprint(token)
        self.value = value
        self.headers: Mapping[str, str] = {}
        self._tried = False

    def __call__(self, tx: Transaction) -> None:
        """Give the signal; raises a `TokenError`, and then nothing is changed."""
        tx.stage("resume_token")
        run, name, path, expires = self.ticket
        status, mode, ended_at, now = tx.row(LOCK, run=run) or (None, None, None, 0)
        tx.certify(CERTIFY, ids=[run])
        known = signal_rows.find(tx, run, name, path_text(path))
        if known is not None and self._tried and known == self.value:
            return
        if status is None:
            raise RunOver(f"there is no run {run} any more; it has ended long ago, and was pruned")
        if now >= expires:
            raise TokenExpired(
                f"this token for {name!r} of run {run} has expired. Ask for a new one: run.token(...)"
            )
        over = ended_at is not None or mode != RunMode.RUNNING
        if known is not None or self._is_answered(tx, over):
            raise TokenSpent(
                f"the wait for {name!r} of run {run} was answered before; app.audit(run) tells by whom"
            )
        if over:
            raise RunOver(f"run {run} is {status}: nothing in it waits any more")
        self._tried = True
        signal_rows.write(tx, run, name, self.value, path, self.headers)
        audit.of_run(tx, "signal", run, signal=name, path=list(path) or None, token=self.fingerprint)

    def _is_answered(self, tx: Transaction, over: bool) -> bool:
        """The step that this is for has ended, such as by its timeout. Of all elements, some may be yet to come.

        Where the run is over, a wait that ended with it was not answered.
        """
        run, name, path, _ = self.ticket
        waits = signal_rows.waits_for(self.engine_state, tx, run, name)
        nodes = [node.key for node in waits if node.depth == len(path)]
        if len(nodes) < len(waits):
            return False
        found = [status for (status,) in tx.rows(WAIT_STATUSES, run=run, nodes=nodes, path=path_text(path))]
        unanswered = (JobStatus.WAITING, *((JobStatus.CANCELLED, JobStatus.SKIPPED) if over else ()))
        return len(found) == len(nodes) and not any(status in unanswered for status in found)
