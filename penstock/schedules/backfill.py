"""Backfills: fires ticks of the past that an operator asks for, a batch at a time; the row says how far it has come.

How far one has come is written in the transaction of its jobs, so one that was broken off goes on from there. A tick
that fired before does not fire again; one that was skipped fires now, and its row says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.schedules import rows
from penstock.schedules.decide import BATCH, Overlap, TickOutcome
from penstock.schedules.times import SECOND, Spec, next_tick, ticks
from penstock.values.typed_json.json_text import dumps

if TYPE_CHECKING:
    from penstock.schedules.fire import DueSchedule

AGAIN = SECOND
"""Microseconds between two checks whether the last tick has ended, in a backfill that goes tick by tick."""
DONE = (TickOutcome.FIRED.value, TickOutcome.WAITING.value)


def pending(
    id: str, next_at: int, end: int, overlap: str, headers: Mapping[str, str] | None = None
) -> dict[str, object]:
    """A backfill that has not begun."""
    headed = {"headers": dict(headers)} if headers else {}
    return {"id": id, "next": next_at, "end": end, "overlap": overlap, "last": None, **headed}


def go_on(one: DueSchedule) -> None:
    """The next batch of the first backfill of a schedule."""
    first, *others = one.row.pending
    one.backfills = [first, *others]
    one.sent = first.get("headers")
    look_at = _batch(one, first)
    if first["next"] is None:
        one.backfills = others
        look_at = one.now if others else None
    if look_at is not None:
        one.look_at.append(look_at)


def _batch(one: DueSchedule, asked: dict[str, Any]) -> int | None:
    """Fire the next ticks of a backfill; returns when to continue."""
    nominals = _some(one, asked)
    known = _known(one, nominals)
    for nominal in nominals:
        outcome = TickOutcome.FIRED
        if known.get(nominal) not in DONE:
            if _is_busy(one, asked):
                if asked["overlap"] == Overlap.QUEUE:
                    asked["next"] = nominal
                    return one.now + AGAIN
                outcome = _despite(one, asked)
            _decide(one, asked, nominal, outcome, is_known=nominal in known)
        asked["next"] = next_tick(_spec(one), nominal)
    if not nominals or asked["next"] is None or asked["next"] > asked["end"]:
        asked["next"] = None
    return one.now


def _some(one: DueSchedule, asked: dict[str, Any]) -> list[int]:
    found = []
    for nominal in ticks(_spec(one), asked["next"] - 1, asked["end"]):
        found.append(nominal)
        if len(found) == BATCH:
            break
    return found


def _spec(one: DueSchedule) -> Spec:
    """The ticks of the schedule, also before its start."""
    return one.spec._replace(start=None)


def _known(one: DueSchedule, nominals: list[int]) -> dict[int, str]:
    """Ticks that have a row, with their outcomes."""
    if not nominals:
        return {}
    found = one.batch.tx.rows(rows.BETWEEN, id=one.row.id, low=nominals[0], high=nominals[-1])
    return {int(nominal): str(outcome) for nominal, outcome in found}


def _is_busy(one: DueSchedule, asked: dict[str, Any]) -> bool:
    """True if the last job or run of this backfill has not ended, or was started by this transaction."""
    return asked["overlap"] != Overlap.ALLOW and (asked.get("fresh") or one.batch.is_going(asked["last"]))


def _despite(one: DueSchedule, asked: dict[str, Any]) -> TickOutcome:
    """The outcome of a tick while the one before it runs."""
    if asked["overlap"] != Overlap.CANCEL or asked.get("fresh"):
        return TickOutcome.SKIPPED_OVERLAP
    one.cancelled.append(asked["last"])
    return TickOutcome.FIRED


def _decide(
    one: DueSchedule, asked: dict[str, Any], nominal: int, outcome: TickOutcome, *, is_known: bool
) -> None:
    def started(id: str) -> None:
        asked["last"] = id

    if outcome is TickOutcome.FIRED and asked["overlap"] != Overlap.ALLOW:
        asked["fresh"] = True
    if is_known:
        one.make_up(nominal, outcome, late=False, start=started)
    else:
        one.record(nominal, outcome, started)


def written(backfills: list[dict[str, Any]]) -> str | None:
    """As it is stored in the row."""
    kept = [{name: value for name, value in each.items() if name != "fresh"} for each in backfills]
    return dumps(kept) if kept else None
