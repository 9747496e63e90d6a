"""Lists acts from the audit trail: the actor, the time, the reason, the subject."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.errors import ConfigurationError
from penstock.job import instant
from penstock.values import parse
from penstock.values.typed_json.json_text import loads

LIST = "SELECT id, acted_at, actor, why, act, subject_kind, subject_id, run_id, detail FROM {audits}"
CONDITIONS = {
    "subject": "(subject_id = :subject OR run_id = :subject)",
    "actor": "actor = :actor",
    "age": "acted_at >= {now} - :age",
    "at": "acted_at >= :at",
}
PLACE = "SELECT acted_at FROM {audits} WHERE id = :id"
BEHIND = " WHERE (acted_at < :at OR (acted_at = :at AND id < :before))"
MOST_ACTS = 20_000
ORDER = " ORDER BY acted_at DESC, id DESC LIMIT :limit"

Since = datetime | timedelta | float | str | None
"""Acts from this instant on, or from this long ago: seconds, or text such as "2h"."""


@dataclass(frozen=True, slots=True)
class Act:
    """One act of a person or a program, at an instant of the database's clock.

    `kind` is what the subject is: a run, a job, a queue or the installation; the last two have no id. `run`: of a
    step's job, its run.
    """

    id: str
    at: datetime
    by: str
    why: str
    act: str
    kind: str
    subject: str | None
    run: str | None
    detail: dict[str, object] = field(default_factory=dict)


def acts(
    tx: Transaction, subject: str | None, by: str | None, since: dict[str, int], limit: int
) -> list[Act]:
    """List acts, the latest first. Acts on a run include those on its steps."""
    named = {"subject": subject, "actor": by, **since}
    given = {name: value for name, value in named.items() if value is not None}
    where = " AND ".join([CONDITIONS[name] for name in given])
    template = LIST + (f" WHERE {where}" if where else "") + ORDER
    return _acts(tx.rows(template, limit=limit, **given))


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Selects the acts of a page."""

    subject: str | None = None
    by: str | None = None
    act: str | None = None


def page_of_acts(tx: Transaction, wanted: AuditFilter, limit: int, before: str | None = None) -> list[Act]:
    """List the acts older than the act `before`, the latest first. With an actor or a kind, only the newest thousands
    of acts are searched."""
    if wanted.act is not None and not wanted.act.isascii():
        return []  # no act has such a name, and not every database can compare it with the names there are
    place = tx.row(PLACE, id=before) if before else None
    given: dict[str, object] = {} if place is None else {"at": place[0], "before": before}
    newest = LIST + (BEHIND if place is not None else " WHERE 1 = 1")
    if wanted.subject is not None:
        newest += f" AND {CONDITIONS['subject']}"
        given["subject"] = wanted.subject
    named = {name: value for name, value in (("actor", wanted.by), ("act", wanted.act)) if value is not None}
    conditions = " AND ".join(f"{name} = :{name}" for name in named)
    template = newest + ORDER
    if named:
        inner = newest + ORDER.replace(":limit", ":most")
        template = f"SELECT * FROM ({inner}) newest WHERE {conditions}{ORDER}"
        given |= {"most": MOST_ACTS, **named}
    return _acts(tx.rows(template, limit=limit, **given))


def since_when(given: Since) -> dict[str, int]:
    """The time that `since` names, as a parameter of the query."""
    if given is None:
        return {}
    if isinstance(given, datetime):
        return {"at": _micros(given)}
    try:
        return {"age": int(parse.duration(given) * 1_000_000)}
    except (ValueError, TypeError) as error:
        try:
            return {"at": _micros(datetime.fromisoformat(str(given)))}
        except ValueError:
            raise ConfigurationError(f"since={given!r}: {error}; or an instant in ISO 8601") from None


def _micros(at: datetime) -> int:
    if at.tzinfo is None:
        raise ConfigurationError(f"since={at}: an instant needs its time zone, such as {at.isoformat()}Z")
    return int(at.timestamp() * 1_000_000)


def _acts(rows: Sequence[Row]) -> list[Act]:
    found = []
    for id, at, by, why, act, kind, subject, run, detail in rows:
        known = loads(detail)
        assert isinstance(known, dict)
        found.append(Act(str(id), instant(at), by, why, act, kind, subject, run, known))
    return found
