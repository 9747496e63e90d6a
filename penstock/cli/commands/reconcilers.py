"""`penstock reconcilers`: lists due, held and failing rows of the tables that are reconciled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exit_codes import UsageError, out
from penstock.cli.options import App, AsJson, DatabaseUrl, opened
from penstock.cli.output import show_json, show_table, span, when
from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    from penstock.operate import reconcilers as operating
else:
    operating = Lazy("penstock.operate.reconcilers")


def reconcilers(
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most this many failing rows")] = 20,
    tracebacks: Annotated[
        bool, typer.Option("--tracebacks", help="where each failing row has failed")
    ] = False,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Show how reconcilers get on. Rows that are due and held, how long they wait, which fail and why."""
    with opened(app, database) as found:
        missing = [
            lack for lack in operating.lacks(found.database.engine, found.reconcilers.values()) if lack.vital
        ]
        if missing:
            what = ", ".join(f"{lack.table}: {lack.what}" for lack in missing[:3])
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise UsageError(f"tables lack something ({what}{more}). `penstock check` prints the migration")
        rows = found.reconciler_status()
        failures = found.failing_rows(limit)
    if as_json:
        show_json({"reconcilers": rows, "failing": failures})
        return
    columns = ["reconciler", "table", "eligible #", "locked #", "expired #", "lag #", "oldest visit #"]
    columns += ["visits/s #", "processed #", "failed #", "lost #"]
    show_table(columns, [_cells(row) for row in rows], empty="the app has no reconcilers")
    if failures:
        out.print()
        cells = [
            (f.reconciler, f.row, f.attempts, when(f.failed_at), " ".join(f.error.split())[:100])
            for f in failures
        ]
        show_table(["reconciler", "row", "attempts #", "failed (UTC)", "error"], cells)
    for failure in failures if tracebacks else ():
        if failure.traceback:
            out.print(f"\n{failure.reconciler} {failure.row}:\n{failure.traceback.rstrip()}", markup=False)


def _cells(row: operating.ReconcilerRow) -> tuple[object, ...]:
    counts = (row.eligible, row.locked, row.expired, span(row.lag), span(row.oldest_visit), f"{row.rate:.1f}")
    return row.name, row.table, *counts, row.processed, row.failed, row.lost
