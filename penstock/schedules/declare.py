"""Writes the schedules that the code declares to the database, when a worker starts and from time to time after that.

The newer code wins, once. A worker that says something new takes the row over, and the revision before it is noted as
superseded; a worker of the older code that says that one again is not heard as long as a worker declares the newer one.
Once no worker has declared the newer one for a while, as after a rollback, the older one counts again.

A pause is an operator's, and no declaration ends it.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.app_services import AppServices
from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.errors import DatabaseUnavailable
from penstock.schedules import rows
from penstock.schedules.decide import TickOutcome, skipped
from penstock.schedules.definition import PIPELINE, ScheduleDefinition
from penstock.schedules.fire import Firing
from penstock.schedules.rows import ScheduleRow
from penstock.schedules.times import SECOND, next_tick
from penstock.telemetry.events import ScheduleFailed
from penstock.values.ids import new_id

AGAIN = 60.0
"""Seconds between two declarations by one worker."""
SILENT = 3 * 60 * SECOND
"""Microseconds: a revision that no worker has declared for this long is not in use any more."""
STAMP = "UPDATE {schedules} SET declared_at = {now} WHERE id {among:ids:uuid}"
STORED = """
SELECT name, id, revision, superseded, declared_at, orphaned_at, {now} FROM {schedules} WHERE name {among:names:text}
"""
STORE = "SELECT 1 FROM {definitions} WHERE hash = :hash"


def declare_all(
    host: AppServices, declared: Iterable[ScheduleDefinition], paused: frozenset[str] = frozenset()
) -> None:
    """Bring the rows up to date: one look, and a transaction for each that differs."""
    wanted = {each.name: each for each in declared}
    if not wanted:
        return
    stored = {row[0]: row[1:] for row in host.database.read(_read_stored, sorted(wanted))}
    same = []
    for name, one in sorted(wanted.items()):
        id, revision, superseded, stamped, orphaned, now = stored.get(name, (None,) * 6)
        if id is not None and revision == one.revision and orphaned is None:
            same.append(str(id))
        elif id is None or one.revision not in superseded or stamped is None or stamped < now - SILENT:
            _declare_apart(host, one, name in paused)
    if same:
        host.database.in_transaction(_stamp, same)


def _declare_apart(host: AppServices, defined: ScheduleDefinition, paused: bool) -> None:
    """Declare one schedule; an error is reported, and the worker starts anyway."""
    try:
        host.database.in_transaction(declare, host, defined, paused)
    except Exception as error:
        if host.database.is_outage(error) or isinstance(error, DatabaseUnavailable):
            raise
        host.events.emit(ScheduleFailed(defined.name, f"{type(error).__name__}: {error}"))


def _read_stored(tx: Transaction, names: list[str]) -> list[Row]:
    return tx.rows(STORED, names=names)


def _stamp(tx: Transaction, ids: list[str]) -> None:
    tx.stage("declare_again")
    tx.run(STAMP, ids=sorted(ids))


def declare(tx: Transaction, host: AppServices, defined: ScheduleDefinition, paused: bool = False) -> None:
    """Write a schedule as the code declares it, unless newer code has declared it differently."""
    tx.stage("declare")
    row = rows.named(tx, defined.name, locked=True)
    if row is None:
        create(tx, host, defined, rows.CODE, paused)
        row = rows.named(tx, defined.name, locked=True)
    if row is None:
        return
    outdated = defined.revision in row.past and row.revision != defined.revision
    if outdated and row.declared_at is not None and row.declared_at >= row.now - SILENT:
        return
    if row.revision != defined.revision or row.orphaned_at is not None or row.source != rows.CODE:
        redefine(tx, host, row, defined, rows.CODE)
    tx.run(STAMP, ids=[row.id])


def create(tx: Transaction, host: AppServices, defined: ScheduleDefinition, source: str, paused: bool) -> str:
    """Insert a row for a schedule; returns its id. An existing row is left unchanged."""
    id, now = new_id(), rows.clock(tx)
    first = next_tick(defined.spec(now), now)
    row: dict[str, object] = {
        "id": id,
        **rows.columns_of(defined),
        "definition": stored_definition(tx, host, defined),
        "next_at": first,
        "due_at": None if paused else first,
        "waiting_at": None,
        "paused_at": now if paused else None,
        "source": source,
        "revision": defined.revision,
        "superseded": "[]",
        "declared_at": now if source == rows.CODE else None,
        "now": now,
    }
    rows.insert(tx, row)
    tx.leave_chores()
    return id


def redefine(
    tx: Transaction, host: AppServices, row: ScheduleRow, defined: ScheduleDefinition, source: str
) -> None:
    """Give a locked row another definition. Ticks that are due by the old one are decided first."""
    if row.due_at is not None and row.due_at <= row.now and row.orphaned_at is None:
        Firing(host).fire_rows(tx, [row])
        again = rows.named(tx, row.defined.name, locked=True)
        row = again if again is not None else row
    if row.revision != defined.revision:
        row.superseded = rows.remembered(
            [each for each in row.past if each != defined.revision], row.revision
        )
    if row.defined.timing != defined.timing or row.next_at is None:
        account_paused(tx, row)
        row.next_at = next_tick(defined.spec(row.created_at), row.now)
    row.defined, row.revision, row.source = defined, defined.revision, source
    row.definition = stored_definition(tx, host, defined)
    row.due_at = due_at(row)
    rows.define(tx, row)
    tx.leave_chores()


def account_paused(tx: Transaction, row: ScheduleRow) -> None:
    """Record ticks that passed while the schedule was paused."""
    if row.paused_at is None or row.next_at is None or row.next_at > row.now:
        return
    spec = row.defined.spec(row.created_at)
    passed = skipped(spec, row.next_at, row.now)
    rows.write_ticks(tx, rows.ticks_skipped(row.id, passed, TickOutcome.SKIPPED_PAUSED, row.now))
    row.next_at = next_tick(spec, row.now)


def due_at(row: ScheduleRow) -> int | None:
    """When a worker must look at it: at its next tick, or now if something waits or is to be made up."""
    if row.backfills or (row.waiting_at is not None and row.paused_at is None):
        return row.now
    return row.next_at if row.paused_at is None else None


def stored_definition(tx: Transaction, host: AppServices, defined: ScheduleDefinition) -> str | None:
    """Store the definition of a pipeline, so that a worker that does not know the pipeline can start a run."""
    if defined.kind != PIPELINE:
        return None
    pipeline = host.find_pipeline(defined.target)
    if pipeline is None:
        return None
    definition = pipeline.runnable
    if tx.row(STORE, hash=definition.hash) is None:
        row = {"hash": definition.hash, "name": definition.name, "text": definition.text}
        tx.insert("definitions", [row], ignore_duplicates=True, created_at="{now}")
    return str(definition.hash)
