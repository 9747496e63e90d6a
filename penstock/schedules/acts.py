"""The acts of operators on a schedule: each is one transaction, which locks its row, and leaves an act in the trail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.app_services import AppServices
from penstock.database.transaction import Transaction
from penstock.errors import ActionRefused
from penstock.queue import audit
from penstock.schedules import backfill as backfills
from penstock.schedules import rows
from penstock.schedules.decide import TickOutcome
from penstock.schedules.declare import account_paused, create, due_at, redefine
from penstock.schedules.definition import PIPELINE, ScheduleDefinition, changed
from penstock.schedules.launch import Launch
from penstock.schedules.rows import ScheduleRow
from penstock.schedules.times import count, instant_of, next_tick
from penstock.values.actor import actor
from penstock.values.ids import id_to_make

FORGET = 1000
"""How many ticks one statement deletes, when their schedule is deleted."""


def write(
    tx: Transaction, host: AppServices, defined: ScheduleDefinition, paused: bool, may_redefine: bool
) -> None:
    """Make a schedule, or redefine the one of that name, if that is allowed."""
    tx.stage("create_schedule")
    row = rows.named(tx, defined.name, locked=True)
    if row is None:
        id = create(tx, host, defined, rows.API, paused)
        row = rows.named(tx, defined.name, locked=True)
        if row is not None and row.id == id:
            audit.of_schedule(tx, "create", id, defined.name, target=defined.target)
            return
    assert row is not None
    if row.revision != defined.revision:
        if not may_redefine:
            raise ActionRefused(
                f"there is a schedule {defined.name!r} already: edit it, or take another name"
            )
        redefine(tx, host, row, defined, row.source)
        audit.of_schedule(tx, "update", row.id, defined.name)
    if paused and row.paused_at is None:
        pause(tx, defined.name, None)


def locked(tx: Transaction, name: str) -> ScheduleRow:
    row = rows.named(tx, name, locked=True)
    if row is None:
        raise ActionRefused(f"there is no schedule {name!r}; `penstock schedules` lists them")
    return row


def pause(tx: Transaction, name: str, why: str | None) -> bool:
    """Pause a schedule: it fires no more until it is resumed. False: it is paused already."""
    tx.stage("pause_schedule")
    row = locked(tx, name)
    if row.paused_at is not None:
        return False
    row.paused_at = row.now
    by, told = actor()
    tx.run(rows.PAUSE, id=row.id, actor=by, why=why or told or "", due_at=due_at(row))
    audit.of_schedule(tx, "pause", row.id, name, why)
    return True


def resume(tx: Transaction, name: str) -> bool:
    """Resume a schedule; ticks that passed meanwhile are recorded as skipped. False: it is not paused."""
    tx.stage("resume_schedule")
    row = locked(tx, name)
    if row.paused_at is None:
        return False
    account_paused(tx, row)
    row.paused_at = None
    tx.run(rows.RESUME, id=row.id, next_at=row.next_at, due_at=due_at(row))
    audit.of_schedule(tx, "resume", row.id, name)
    tx.leave_chores()
    return True


def trigger(
    tx: Transaction, host: AppServices, name: str, id: str, made: list[str], headers: Mapping[str, str]
) -> tuple[str, str]:
    """Start a job or run now, whatever the clock and the policies say; returns its kind and id.

    `made`: the id of an earlier try.
    """
    tx.stage("trigger_schedule")
    row = locked(tx, name)
    if made and (known := _triggered(tx, row, made)):
        return row.defined.kind, known
    launch = Launch(host, tx, is_callers=True)
    (tick,) = rows.ticks_fired(row.id, [(row.now, TickOutcome.FIRED, None)], row.now, rows.TRIGGER)
    launch.add(row, row.now, lambda known: tick.update(target_id=known), headers, id)
    launch.write()
    rows.write_ticks(tx, [tick])
    row.last_id = str(tick["target_id"])
    rows.save(tx, row)
    audit.of_schedule(tx, "trigger", row.id, name)
    made.append(row.last_id)
    return row.defined.kind, row.last_id


def _triggered(tx: Transaction, row: ScheduleRow, made: list[str]) -> str | None:
    """The job or run that an earlier try has started, whose answer was lost."""
    found = rows.ticks_of(tx, row.id, row.now + 1, 10)
    return next((tick.target for tick in found if tick.target in made), None)


def backfill(
    tx: Transaction, name: str, id: str, start: int, end: int, overlap: str, headers: Mapping[str, str]
) -> int:
    """Have workers fire the ticks from start to end that have not fired; returns how many ticks there are in all."""
    tx.stage("backfill")
    row = locked(tx, name)
    spec = row.defined.spec(row.created_at)._replace(start=None)
    end = min(end, row.now, row.next_at - 1 if row.next_at is not None else row.now)
    first = next_tick(spec, start - 1)
    if first is None or first > end:
        return 0
    number = count(spec, start - 1, end)
    if id in [each["id"] for each in row.pending]:
        return number
    row.backfills = backfills.written([*row.pending, backfills.pending(id, first, end, overlap, headers)])
    row.due_at = row.now
    rows.save(tx, row)
    begin, until = instant_of(start).isoformat(), instant_of(end).isoformat()
    audit.of_schedule(tx, "backfill", row.id, name, start=begin, end=until, count=number)
    tx.leave_chores()
    return number


def update(tx: Transaction, host: AppServices, name: str, given: Mapping[str, object]) -> None:
    """Change some fields of a schedule."""
    tx.stage("update_schedule")
    row = locked(tx, name)
    known = row.defined
    target: Any = (host.find_pipeline if known.kind == PIPELINE else host.find_task)(known.target)
    defined = changed(known, target, given)
    if defined.revision == known.revision:
        return
    # The revision of the code is kept: the code's declaration counts again only when it changes.
    revision, past = row.revision, row.superseded
    redefine(tx, host, row, defined, row.source)
    if row.source == rows.CODE:
        tx.run(KEEP_REVISION, id=row.id, revision=revision, superseded=past)
    audit.of_schedule(tx, "update", row.id, name, changed=sorted(given))


KEEP_REVISION = "UPDATE {schedules} SET revision = :revision, superseded = :superseded WHERE id = :id"


def delete(tx: Transaction, name: str) -> bool:
    """Delete a schedule and its ticks; its jobs and runs go on. False: there is none."""
    tx.stage("delete_schedule")
    row = rows.named(tx, name, locked=True)
    if row is None:
        return False
    while rows.forget_ticks(tx, row.id, FORGET):
        pass
    tx.run(rows.DELETE, id=row.id)
    audit.of_schedule(tx, "delete", row.id, name, target=row.defined.target)
    return True


def new_backfill() -> str:
    """An id for a backfill, by which a request that is repeated after a lost answer is recognized."""
    return id_to_make()
