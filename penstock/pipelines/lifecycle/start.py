"""Starts runs: writes the row, the definition and the first steps in one transaction; or finds the run that has the
key."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from penstock.database.transaction import Transaction
from penstock.pipelines.advance import run_headers, timers
from penstock.pipelines.advance.advance import Advance
from penstock.pipelines.advance.finish import finish
from penstock.pipelines.advance.run_rows import RunView, view, views
from penstock.pipelines.advance.state import EngineState, Mode, RunHeader
from penstock.pipelines.lifecycle import run_line
from penstock.pipelines.model.definition import Definition
from penstock.pipelines.model.wiring import wiring_of
from penstock.queue import audit
from penstock.values.actor import named_actor
from penstock.values.ids import read_id
from penstock.values.status import RunStatus

KEY_HOLDERS = """
SELECT k.run_key, k.run_id, (SELECT 1 FROM {runs} r WHERE r.id = k.run_id) FROM {run_keys} k
WHERE k.pipeline = :pipeline AND k.run_key {which} ORDER BY k.run_key {lock}
"""
KEY_HOLDER = KEY_HOLDERS.replace("{which}", "= :key")
KEY_HOLDERS = KEY_HOLDERS.replace("{which}", "{among:keys:text}")
NOMINAL = "SELECT scheduled_for FROM {runs} WHERE id = :id"
WRITTEN = "SELECT 1 FROM {runs} WHERE id = :id"
IS_THERE = "SELECT 1 FROM {runs} WHERE id = :id {lock}"
TAKE_KEY = "UPDATE {run_keys} SET run_id = :id WHERE pipeline = :pipeline AND run_key = :key"
DUE = "SELECT status FROM {runs} WHERE id = :id {lock}"
STARTED = "UPDATE {runs} SET status = 'running', started_at = {now} WHERE id = :id"
STORED = "SELECT hash FROM {definitions} WHERE hash {among:hashes:text}"
REMEMBERED = 5.0
"""Seconds for which a process takes a definition that it has written for stored. Later the database may have been
restored, or a server that was behind may have taken over, without that row."""


class NewRun(NamedTuple):
    """A run to be written."""

    id: str
    definition: Definition
    args: str
    key: str | None = None
    delay: float = 0.0
    parent_run: str | None = None
    parent_job: str | None = None
    revived_from: str | None = None
    only: str | None = None
    redefined: bool = False
    rerun_of: str | None = None
    due_at: int | None = None
    """When it is to start, in microseconds of the database's clock; instead of a delay."""
    labels: tuple[str, ...] = ()
    waits: bool = False
    """True if the run starts when the runs that it follows have ended, not by itself."""
    scheduled_for: int | None = None
    """The nominal time of the tick that it was started by."""
    headers: Mapping[str, str] | None = None
    """Texts for the middleware around its steps."""
    forked_from: str | None = None

    @property
    def is_due(self) -> bool:
        return not self.waits and self.delay <= 0 and self.due_at is None

    @property
    def starts_now(self) -> bool:
        return self.is_due and (self.definition.max_running is None or self.parent_run is not None)


def trigger(engine_state: EngineState, tx: Transaction, new: NewRun) -> str:
    """Write a run and begin it; the id under which it exists."""
    tx.stage("trigger")
    if new.key is not None:
        row = {"pipeline": new.definition.name, "run_key": new.key, "run_id": new.id}
        tx.insert("run_keys", [row], ignore_duplicates=True)
        found = tx.row(KEY_HOLDER, pipeline=new.definition.name, key=new.key)
        holder = new.id if found is None else read_id(found[1])
        if found is not None and holder != new.id and not _takes_over(tx, new, holder, found[2]):
            return holder
    open_runs(engine_state, tx, [new])
    if named_actor() is not None:
        audit.of_run(tx, "trigger", new.id, pipeline=new.definition.name)
    return new.id


def trigger_many(engine_state: EngineState, tx: Transaction, news: Sequence[NewRun]) -> list[str]:
    """The same for many runs of one pipeline, in a few statements whatever their number; their ids.

    Keys are taken in one order, so that two callers with the same keys wait for each other and do not deadlock.
    """
    tx.stage("trigger")
    keyed: dict[str, NewRun] = {}
    for new in news:
        if new.key is not None:
            keyed.setdefault(new.key, new)
    rows = [
        {"pipeline": new.definition.name, "run_key": key, "run_id": new.id}
        for key, new in sorted(keyed.items())
    ]
    tx.insert("run_keys", rows, ignore_duplicates=True)
    holders: dict[str, str] = {}
    for key, (holder, there) in _holders(tx, news, keyed).items():
        over = holder != keyed[key].id and _takes_over(tx, keyed[key], holder, there)
        holders[key] = keyed[key].id if over else holder
    fresh = [new for new in news if new.key is None or holders[new.key] == new.id]
    open_runs(engine_state, tx, fresh)
    if named_actor() is not None and fresh:
        audit.of_runs(tx, "trigger", [new.id for new in fresh], pipeline=fresh[0].definition.name)
    return [new.id if new.key is None else holders[new.key] for new in news]


def _takes_over(tx: Transaction, new: NewRun, holder: str, there: object) -> bool:
    """Take over a key whose run is not there: its caller committed although the trigger had failed. True if taken.

    The lock is on the key. Only a read that locks the run, too, sees past the snapshot of a caller's transaction.
    """
    if there is not None or tx.row(IS_THERE, id=holder) is not None:
        return False
    tx.run(TAKE_KEY, pipeline=new.definition.name, key=new.key, id=new.id)
    return True


def written(tx: Transaction, news: Sequence[NewRun]) -> list[str] | None:
    """The ids under which these runs exist; None if one of them does not."""
    holders = _holders(tx, news, [new.key for new in news if new.key is not None])
    ids = [new.id if new.key is None else holders.get(new.key, (new.id, None))[0] for new in news]
    return ids if all(is_written(tx, id) for id in ids) else None


def _holders(tx: Transaction, news: Sequence[NewRun], keys: Iterable[str]) -> dict[str, tuple[str, object]]:
    """By key: the run that has it, and whether that run exists."""
    wanted = sorted(set(keys))
    if not wanted:
        return {}
    found = tx.rows(KEY_HOLDERS, pipeline=news[0].definition.name, keys=wanted)
    return {str(key): (read_id(run), there) for key, run, there in found}


def open_runs(engine_state: EngineState, tx: Transaction, news: Sequence[NewRun]) -> None:
    """Write runs, and begin those that are due now."""
    store(engine_state, tx, {new.definition.hash: new.definition for new in news})
    begun, later = [new for new in news if new.starts_now], [new for new in news if not new.starts_now]
    tx.insert("runs", [_row(new) for new in begun], created_at="{now}", started_at="{now}")
    tx.insert("runs", [_row(new) for new in later], created_at="{now}")
    tx.insert("run_labels", [{"label": label, "run_id": new.id} for new in news for label in new.labels])
    run_headers.write(tx, [(new.id, new.headers) for new in news if new.headers])
    application = Advance(engine_state, tx)
    trace = engine_state.trace(tx)
    for new in news:
        if new.starts_now:
            origin = RunHeader(
                new.definition.name,
                new.definition.hash,
                new.args,
                new.revived_from,
                new.only,
                new.redefined,
                new.parent_job,
                new.scheduled_for,
                new.forked_from,
            )
            trace.modes[new.id] = Mode("running", False, new.definition.hash)
            _begin(application, view(engine_state, tx, new.id, origin))
        elif not new.is_due and not new.waits:
            timers.set(tx, timers.START, new.id, after=new.delay, at=new.due_at)
    run_line.join(tx, [(new.id, new.definition) for new in later if new.is_due])
    finish(application)


def start(engine_state: EngineState, tx: Transaction, run: str) -> None:
    """Begin a run that is due, once; or put it in line, if its pipeline has a limit on its runs."""
    tx.stage("start")
    row = tx.row(DUE, id=run)
    if row is None or row[0] != RunStatus.PENDING:
        return
    found = views(engine_state, tx, [run]).get(run)
    if found is None:
        return
    if found.is_limited and not run_line.is_admitted(tx, run, found.wiring.definition):
        return
    tx.run(STARTED, id=run)
    application = Advance(engine_state, tx)
    _begin(application, found)
    finish(application)


def _begin(application: Advance, run: RunView) -> None:
    deadline = run.wiring.definition.deadline
    if deadline is not None:
        timers.set(application.tx, timers.DEADLINE, run.id, after=deadline)
    application.begin(run)


def nominal_of(tx: Transaction, run: str) -> int | None:
    """The nominal time of the tick that a run was started by."""
    row = tx.row(NOMINAL, id=run)
    return None if row is None else row[0]


def is_written(tx: Transaction, run: str) -> bool:
    return tx.row(WRITTEN, id=run) is not None


def store(engine_state: EngineState, tx: Transaction, definitions: dict[str, Definition]) -> None:
    """Write definitions that may not be there yet."""
    for key, definition in definitions.items():
        if key not in engine_state.wirings:
            engine_state.wirings[key] = wiring_of(definition.text)
    now = time.monotonic()
    unsure = [key for key in sorted(definitions) if engine_state.stored.get(key, -inf) <= now - REMEMBERED]
    if not unsure:
        return
    # Asked first: to insert a row that is there would lock it, on MySQL, until the caller's transaction ends.
    again = [key for key in unsure if key in engine_state.stored]
    there = {key for (key,) in tx.rows(STORED, hashes=again)} if again else set()
    missing = [definitions[key] for key in unsure if key not in there]
    rows = [{"hash": one.hash, "name": one.name, "text": one.text} for one in missing]
    tx.insert("definitions", rows, ignore_duplicates=True, created_at="{now}")
    tx.after_commit(lambda: engine_state.stored.update(dict.fromkeys(unsure, now)))


def _row(new: NewRun) -> dict[str, object]:
    return {
        "id": new.id,
        "pipeline": new.definition.name,
        "definition": new.definition.hash,
        "run_key": new.key,
        "args": new.args,
        "status": (RunStatus.RUNNING if new.starts_now else RunStatus.PENDING).value,
        "mode": "running",
        "failed": 0,
        "halted": False,
        "reasons": "[]",
        "parent_run_id": new.parent_run,
        "parent_job_id": new.parent_job,
        "revived_from": new.revived_from,
        "only_step": new.only,
        "redefined": True if new.redefined else None,
        "rerun_of": new.rerun_of,
        "scheduled_for": new.scheduled_for,
        "forked_from": new.forked_from,
    }
