"""The list of schedules, the page of one with its next ticks and its history, and the forms to create and change
one."""

from __future__ import annotations

from penstock.dashboard.views import NotFound, Page, Shown, View
from penstock.database.transaction import Transaction
from penstock.operate import schedules as queries
from penstock.schedules import rows
from penstock.schedules.decide import Missed, Overlap
from penstock.schedules.definition import PIPELINE, ScheduleDefinition
from penstock.schedules.rows import ScheduleRow, TickRow
from penstock.schedules.schedule import state, when
from penstock.schedules.times import SECOND, first_ticks, instant_of

PAGE_SIZE = 30
NEXT_TICKS = 8
LAST = 2**62
LATEST_TICKS = 12
EMPTY: dict[str, object] = dict.fromkeys(
    ["cron", "every", "tz", "missed", "overlap", "jitter", "start_at", "end_at"]
)
"""The fields of a new schedule."""


def schedules(view: View) -> Page:
    """Schedules by name."""
    prefix, after = view.text("name") or "", view.text("after") or ""
    found = view.read(rows.listed, prefix, PAGE_SIZE + 1, after)
    shown, more = found[:PAGE_SIZE], len(found) > PAGE_SIZE
    latest = view.read(queries.latest_outcomes, [row.id for row in shown], LATEST_TICKS)
    stored = {row.defined.name for row in found}
    waiting = sorted(set(view.app.declared) - stored) if not prefix and not after and not more else []
    return Page(
        "schedules.html",
        "Schedules",
        {
            "schedules": [_brief(row) | {"ticks": latest.get(row.id, [])} for row in shown],
            "not_stored": [{"name": name, "target": view.app.declared[name].target} for name in waiting],
            "filter": {"name": prefix or None},
            "after": shown[-1].defined.name if more else None,
        },
    )


def schedule(view: View) -> Page:
    """One schedule by its name."""
    name = view.text("name")
    if name is None:
        raise NotFound("the address has no name of a schedule")
    data = view.read(lambda tx: _schedule(view, tx, name))
    return Page("schedule.html", name, data, section="schedules")


def new_schedule(view: View) -> Page:
    """The form for a new schedule, or for another definition of one that is there."""
    view.demand("schedules")
    name = view.text("name")
    if name is None:
        view.demand("enqueue")
    row = None if name is None else view.read(rows.named, name)
    if name is not None and row is None:
        raise NotFound(f"there is no schedule {name!r}")
    data = {
        "name": name,
        "given": EMPTY if row is None else {name: _brief(row)[name] for name in EMPTY},
        "targets": sorted({*view.app.pipelines, *view.app.task_names}),
        "missed": list(Missed),
        "overlaps": list(Overlap),
    }
    return Page(
        "schedule_form.html", "New schedule" if row is None else f"Edit {name}", data, section="schedules"
    )


def _brief(row: ScheduleRow) -> dict[str, object]:
    defined = row.defined
    return {
        "name": defined.name,
        "target": defined.target,
        "kind": defined.kind,
        "when": when(defined),
        "cron": defined.cron,
        "every": None if defined.every is None else defined.every / SECOND,
        "tz": defined.zone,
        "state": state(row),
        "status": _status(row),
        "next_at": None if row.paused_at is not None else row.next_at,
        "missed": defined.missed,
        "overlap": defined.overlap,
        "jitter": defined.jitter / SECOND,
        "start_at": defined.start,
        "end_at": defined.end,
        "trouble": row.trouble,
        "paused_at": row.paused_at,
        "paused_by": row.paused_by,
        "pause_why": row.pause_why,
        "declared": None if row.source != rows.CODE else row.orphaned_at is None,
        "created_at": row.created_at,
    }


def _status(row: ScheduleRow) -> str:
    """One word for the state of a schedule; it has a colour and an icon."""
    if row.source == rows.CODE and row.orphaned_at is not None:
        return "orphaned"
    if row.paused_at is not None:
        return "paused"
    if row.trouble is not None:
        return "trouble"
    return "ended" if row.next_at is None else "active"


def _schedule(view: View, tx: Transaction, name: str) -> dict[str, object]:
    row = rows.named(tx, name)
    if row is None:
        raise NotFound(f"there is no schedule {name!r}")
    before = view.text("before") or ""
    start = int(before) if before.isdigit() else LAST
    found = rows.ticks_of(tx, row.id, start, PAGE_SIZE + 1)
    ticks, more = found[:PAGE_SIZE], len(found) > PAGE_SIZE
    statuses = queries.statuses_of(
        tx, [one.target for one in ticks if one.target], row.defined.kind == PIPELINE
    )
    return {
        "schedule": _brief(row),
        "args": _arguments(view, row),
        "next": [] if row.paused_at is not None else _next(row),
        "ticks": [_tick(row.defined, one, statuses) for one in ticks],
        "before": ticks[-1].nominal if more else None,
        "backfills": row.pending,
        "overlaps": list(Overlap),
    }


def _next(row: ScheduleRow) -> list[dict[str, object]]:
    """The next ticks, each also in the local time of its zone."""
    after = row.now if row.next_at is None else max(row.now, row.next_at - 1)
    try:
        found = first_ticks(row.defined.spec(row.created_at), after, NEXT_TICKS)
    except ValueError:
        return []
    zone = row.defined.zone
    return [{"tick_at": one, "wall": f"{instant_of(one, zone):%a %d %b %H:%M:%S} {zone}"} for one in found]


def _tick(defined: ScheduleDefinition, tick: TickRow, statuses: dict[str, str]) -> dict[str, object]:
    is_run = defined.kind == PIPELINE
    return {
        "nominal_at": tick.nominal,
        "first_at": tick.first,
        "count": tick.count,
        "outcome": tick.outcome,
        "triggered": tick.kind == rows.TRIGGER,
        "lateness": None if tick.lateness is None else tick.lateness / SECOND,
        "run": tick.target if is_run else None,
        "job": None if is_run else tick.target,
        "status": statuses.get(tick.target or ""),
    }


def _arguments(view: View, row: ScheduleRow) -> Shown | None:
    return view.shown(row.defined.target, "arguments", row.defined.payload)
