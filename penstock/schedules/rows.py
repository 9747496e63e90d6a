"""The statements that read and write the rows of schedules and their ticks.

`next_at` is the first tick that nothing is decided about. `due_at` is when a worker has to look at the row: NULL while
there is nothing to do, because it is paused, has ended, or is not declared any more; so those cost nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.schedules.decide import Skipped, TickOutcome
from penstock.schedules.definition import ScheduleDefinition
from penstock.values.typed_json.json_text import dumps, loads

DEFINITION = {
    "name": "name",
    "kind": "kind",
    "target": "target",
    "payload": "payload",
    "options": "options",
    "cron": "cron",
    "every": "every",
    "zone": "zone",
    "missed": "missed",
    "window": "missed_window",
    "limit": "missed_limit",
    "overlap": "overlap",
    "jitter": "jitter",
    "start": "start_at",
    "end": "end_at",
}
"""The fields of a definition, and the columns they are in."""
STATE = (
    "id, definition, next_at, due_at, waiting_at, last_id, backfills, paused_at, paused_by, pause_why, source, "
    "revision, superseded, declared_at, orphaned_at, trouble, created_at, updated_at"
)
SELECT = f"SELECT {', '.join(DEFINITION.values())}, {STATE}, {{now}} FROM {{schedules}} "
DUE = SELECT + "WHERE due_at <= {now} ORDER BY due_at, id LIMIT :limit {lock_skip}"
WAITING = (
    SELECT + "WHERE waiting_at IS NOT NULL OR backfills IS NOT NULL ORDER BY id LIMIT :limit {lock_skip}"
)
ONE = SELECT + "WHERE id = :id {lock}"
BY_NAME = SELECT + "WHERE name = :name"
BY_NAME_LOCKED = BY_NAME + " {lock}"
LISTED = SELECT + "WHERE name >= :low AND name < :high AND name > :after ORDER BY name LIMIT :limit"
ALL = SELECT + "WHERE name > :after ORDER BY name LIMIT :limit"
CLOCK = "SELECT {now}"
MOVE = "UPDATE {schedules} SET next_at = :next_at, due_at = :due_at, trouble = NULL WHERE id {among:ids:uuid}"
SAVE = """
UPDATE {schedules} SET next_at = :next_at, due_at = :due_at, waiting_at = :waiting_at, last_id = :last_id,
  backfills = :backfills, trouble = NULL WHERE id = :id
"""
DEFINE = f"""
UPDATE {{schedules}} SET {", ".join(f"{column} = :{column}" for column in DEFINITION.values() if column != "name")},
  definition = :definition, next_at = :next_at, due_at = :due_at, source = :source, revision = :revision,
  superseded = :superseded, orphaned_at = NULL, trouble = NULL, updated_at = {{now}} WHERE id = :id
"""
PAUSE = """
UPDATE {schedules} SET paused_at = {now}, paused_by = :actor, pause_why = :why, due_at = :due_at, updated_at = {now}
WHERE id = :id
"""
RESUME = """
UPDATE {schedules} SET paused_at = NULL, paused_by = NULL, pause_why = NULL, next_at = :next_at, due_at = :due_at,
  trouble = NULL, updated_at = {now} WHERE id = :id
"""
TROUBLE = "UPDATE {schedules} SET trouble = :trouble, due_at = {now} + :wait WHERE id = :id"
ORPHAN = "UPDATE {schedules} SET orphaned_at = {now} WHERE id = :id"
DELETE = "DELETE FROM {schedules} WHERE id = :id"
TICKS = """
SELECT nominal_at, kind, outcome, target_id, first_at, number, lateness, decided_at FROM {schedule_ticks}
WHERE schedule_id = :id AND nominal_at < :before ORDER BY nominal_at DESC, kind LIMIT :limit
"""
BETWEEN = """
SELECT nominal_at, outcome FROM {schedule_ticks}
WHERE schedule_id = :id AND kind = 'tick' AND nominal_at >= :low AND nominal_at <= :high
"""
MADE_UP = """
UPDATE {schedule_ticks} SET outcome = :outcome, target_id = :target, decided_at = {now}, lateness = :lateness
WHERE schedule_id = :id AND nominal_at = :nominal AND kind = 'tick'
"""
FORGET_TICKS = """
DELETE FROM {schedule_ticks} WHERE schedule_id = :id AND nominal_at {among:nominals:int}
"""
OF_SCHEDULE = (
    "SELECT nominal_at FROM {schedule_ticks} WHERE schedule_id = :id ORDER BY nominal_at LIMIT :limit"
)
JOBS = "SELECT job_id FROM {job_states} WHERE job_id {among:ids:uuid} AND finished_at IS NULL"
RUNS = "SELECT id FROM {runs} WHERE id {among:ids:uuid} AND ended_at IS NULL"
TICK, SPAN, TRIGGER = "tick", "span", "trigger"
CODE, API = "code", "api"


@dataclass(slots=True)
class ScheduleRow:
    """A schedule as it stands."""

    defined: ScheduleDefinition
    id: str
    definition: str | None
    next_at: int | None
    due_at: int | None
    waiting_at: int | None
    last_id: str | None
    backfills: str | None
    paused_at: int | None
    paused_by: str | None
    pause_why: str | None
    source: str
    revision: str
    superseded: str
    declared_at: int | None
    orphaned_at: int | None
    trouble: str | None
    created_at: int
    updated_at: int
    now: int
    """By the database's clock, when it was read."""

    @property
    def past(self) -> list[str]:
        """Revisions that were superseded."""
        found = loads(self.superseded)
        assert isinstance(found, list)
        return [str(each) for each in found]

    @property
    def pending(self) -> list[dict[str, Any]]:
        """Backfills that are not yet done."""
        found = loads(self.backfills) if self.backfills else []
        assert isinstance(found, list)
        return [dict(each) for each in found]


@dataclass(frozen=True, slots=True)
class TickRow:
    """The record of a tick; or of several that did not fire, which it counts."""

    nominal: int
    kind: str
    outcome: str
    target: str | None
    first: int
    count: int
    lateness: int | None
    decided_at: int


def row_of(found: Row) -> ScheduleRow:
    fields = dict(zip(DEFINITION, found, strict=False))
    return ScheduleRow(ScheduleDefinition(**fields), *found[len(DEFINITION) :])


def named(tx: Transaction, name: str, *, locked: bool = False) -> ScheduleRow | None:
    found = tx.row(BY_NAME_LOCKED if locked else BY_NAME, name=name)
    return None if found is None else row_of(found)


def listed(tx: Transaction, prefix: str, limit: int, after: str = "") -> list[ScheduleRow]:
    """Schedules whose name begins so, by name. Databases sort differently, so the prefix is checked again here."""
    found: list[ScheduleRow] = []
    while len(found) < limit:
        rows = [row_of(row) for row in tx.rows(ALL, after=after, limit=max(limit, 100))]
        found += [row for row in rows if row.defined.name.startswith(prefix)]
        if len(rows) < max(limit, 100):
            break
        after = rows[-1].defined.name
    return found[:limit]


def clock(tx: Transaction) -> int:
    row = tx.row(CLOCK)
    assert row is not None
    return int(row[0])


def insert(tx: Transaction, row: Mapping[str, object]) -> None:
    tx.insert("schedules", [row], ignore_duplicates=True, created_at=":now", updated_at=":now")


def columns_of(defined: ScheduleDefinition) -> dict[str, object]:
    return {column: getattr(defined, field) for field, column in DEFINITION.items()}


def define(tx: Transaction, row: ScheduleRow) -> None:
    """Write its new definition, and when a worker must look at it."""
    fields = columns_of(row.defined)
    fields.pop("name")
    state = {
        name: getattr(row, name) for name in ("id", "definition", "next_at", "due_at", "source", "revision")
    }
    tx.run(DEFINE, **fields, **state, superseded=row.superseded)


def save(tx: Transaction, row: ScheduleRow) -> None:
    """Write the columns that firing changes."""
    names = ("id", "next_at", "due_at", "waiting_at", "last_id", "backfills")
    tx.run(SAVE, **{name: getattr(row, name) for name in names})


def ticks_fired(
    schedule: str,
    fired: Iterable[tuple[int, TickOutcome, str | None]],
    now: int,
    kind: str = TICK,
    late: bool = True,
) -> list[dict[str, object]]:
    """The rows of single ticks."""
    return [
        {
            "schedule_id": schedule,
            "nominal_at": nominal,
            "kind": kind,
            "outcome": outcome.value,
            "target_id": target,
            "first_at": nominal,
            "number": 1,
            "lateness": max(0, now - nominal) if late else None,
            "now": now,
        }
        for nominal, outcome, target in fired
    ]


def ticks_skipped(
    schedule: str, skipped: Iterable[Skipped], outcome: TickOutcome, now: int
) -> list[dict[str, object]]:
    """The rows of ticks that did not fire."""
    return [
        {
            "schedule_id": schedule,
            "nominal_at": one.nominal,
            "kind": TICK if one.number == 1 else SPAN,
            "outcome": outcome.value,
            "target_id": None,
            "first_at": one.first,
            "number": one.number,
            "lateness": max(0, now - one.nominal),
            "now": now,
        }
        for one in skipped
    ]


def write_ticks(tx: Transaction, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows of ticks. A second row for the same tick violates the key, and the whole transaction fails."""
    tx.insert("schedule_ticks", rows, decided_at=":now")


def ticks_of(tx: Transaction, id: str, before: int, limit: int) -> list[TickRow]:
    """The ticks of a schedule, latest first."""
    return [TickRow(*row) for row in tx.rows(TICKS, id=id, before=before, limit=limit)]


def going(tx: Transaction, jobs: Sequence[str], runs: Sequence[str]) -> set[str]:
    """Those of these jobs and runs that have not ended."""
    found = tx.rows(JOBS, ids=sorted(set(jobs))) if jobs else []
    found += tx.rows(RUNS, ids=sorted(set(runs))) if runs else []
    return {str(row[0]) for row in found}


def forget_ticks(tx: Transaction, id: str, limit: int) -> bool:
    """Delete some ticks of a schedule; True if there may be more."""
    found = [int(row[0]) for row in tx.rows(OF_SCHEDULE, id=id, limit=limit)]
    if found:
        tx.run(FORGET_TICKS, id=id, nominals=sorted(set(found)))
    return len(found) == limit


def with_defined(row: ScheduleRow, defined: ScheduleDefinition) -> ScheduleRow:
    return dataclasses.replace(row, defined=defined)


def remembered(past: Sequence[str], revision: str, most: int = 20) -> str:
    """The superseded revisions and one more."""
    return dumps([*[each for each in past if each != revision], revision][-most:])
