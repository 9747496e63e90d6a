"""`penstock audit`: lists what people did; `penstock show` prints the same for a run or a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from penstock.app import Penstock
from penstock.cli.exit_codes import out
from penstock.cli.options import App, AsJson, DatabaseUrl, opened
from penstock.cli.output import at, show_json, show_table
from penstock.operate.audit import Act
from penstock.operate.jobs import UnknownId, id_range
from penstock.operate.runs import find_run_or_job
from penstock.values.typed_json.json_text import dumps

COLUMNS = ["when (UTC)", "by", "act", "subject", "why", "detail"]
WHOLE_ID = 32
"""Digits of an id, its hyphens not counted."""


def audit(
    subject: Annotated[
        str | None, typer.Option(metavar="ID", help="only of this run (with its steps) or job")
    ] = None,
    by: Annotated[str | None, typer.Option(metavar="WHO", help="only acts of this actor")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="AGE|INSTANT", help='such as "2d", or ISO 8601 with a time zone')
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most this many")] = 50,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List what people did, the latest first. When, by whom, to what, and why."""
    with opened(app, database) as found:
        id = _subject(found, subject) if subject else None
        acts = found.audit(id, by, since, limit)
    if as_json:
        show_json([plain(act) for act in acts])
    else:
        show_table(COLUMNS, [row(act) for act in acts], empty="nothing was done")


def show_acts(acts: Sequence[Act]) -> None:
    """Show the acts on one run or job, the earliest first."""
    if acts:
        out.print()
        show_table(COLUMNS, [row(act) for act in reversed(acts)])


def plain(act: Act) -> dict[str, object]:
    """An act as JSON."""
    return {
        "at": act.at.isoformat().replace("+00:00", "Z"),
        "by": act.by,
        "why": act.why,
        "act": act.act,
        "kind": act.kind,
        "subject": act.subject,
        "run": act.run,
        "detail": act.detail,
    }


def row(act: Act) -> tuple[object, ...]:
    subject = f"{act.kind} {act.subject}" if act.subject else act.kind
    detail = dumps(act.detail) if act.detail else ""
    return at(act.at), act.by, act.act, subject, act.why, detail


def _subject(app: Penstock, prefix: str) -> str:
    """A given id. The trail outlives its subject, so a whole id is taken even if the run or job is gone."""
    try:
        return app.database.read(find_run_or_job, prefix)[0]
    except UnknownId:
        if len(prefix.replace("-", "")) < WHOLE_ID:
            raise
        return id_range(prefix)[0]
