"""Commands for the upkeep of an installation: migrate, check, doctor, prune."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.exit_codes import BAD, UsageError, as_typed, out
from penstock.cli.load_app import find_app, load_app, names_app
from penstock.cli.options import App, AsJson, By, DatabaseUrl, Why, acting, acting_on, opened
from penstock.cli.output import COLOURS, progress, show_json, wrapped
from penstock.schema import version
from penstock.values import parse
from penstock.values.escape import in_line
from penstock.values.lazy_import import Lazy
from penstock.values.plain import counted

if TYPE_CHECKING:
    from penstock.operate import check as checking
    from penstock.operate import doctor as examining
    from penstock.operate.diagnosis import damage
    from penstock.schema import migrate as migrations
else:
    checking, examining = Lazy("penstock.operate.check"), Lazy("penstock.operate.doctor")
    migrations, damage = Lazy("penstock.schema.migrate"), Lazy("penstock.operate.diagnosis.damage")

LABEL = 8
"""Width of the column for the level of a finding."""


def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="print the SQL instead of running it")] = False,
    app: App = None,
    database: DatabaseUrl = None,
) -> None:
    """Create the tables, or bring them up to date. Safe from many places at once."""
    found = find_app(app, database)
    try:
        if sql:
            out.print(migrations.as_sql(found.database), markup=False, end="")
            return
        applied = found.migrate()
        words = f"applied {counted(applied, 'migration')}" if applied else "nothing to do"
        out.print(f"{words}; the schema has version {version.LATEST}", markup=False)
    finally:
        found.close()


def check(
    target: Annotated[str | None, typer.Argument(metavar="MODULE:APP", help="default: $PENSTOCK_APP")] = None,
    as_json: AsJson = False,
) -> None:
    """Check an app without starting anything. Imports, settings, every signature and definition; needs no database."""
    found = load_app(target)
    problems = checking.check_app(found)
    if as_json:
        show_json({"tasks": sorted(found.tasks), "pipelines": sorted(found.pipelines), "problems": problems})
    else:
        for problem in problems:
            out.print(f"{in_line(problem.subject)}: {in_line(problem.message)}", markup=False, style="red")
        words = counted(len(problems), "problem") if problems else "no problems"
        out.print(f"{examining.declared_by(found)}, {words}", markup=False)
    if problems:
        raise typer.Exit(BAD)


def doctor(
    mend: Annotated[
        bool, typer.Option("--repair", help="first repair damaged rows, as far as that can be done")
    ] = False,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Find what is wrong with an installation. Each finding says what to do. Exit code 1: something was found."""
    with opened(app, database, checked=mend) as found, acting(by, why):
        mended = damage.repair(found.database, found.find_pipeline) if mend else []
        findings = examining.examine(examining.CheckContext.of(found, names_app(app, database)))
    if as_json:
        show_json(findings)
    else:
        for one, done in mended:
            out.print(f"{'mended' if done else 'left':<8}{in_line(one.message)}", markup=False)
        for finding in findings:
            _show(finding)
    if any(finding.level is not examining.Level.OK for finding in findings):
        raise typer.Exit(BAD)


def prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help='such as "14d" or "12h"')],
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Remove finished work older than an age, in batches."""
    try:
        age = parse.duration(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than {older_than!r}: {error}") from None
    with acting_on(app, database, by, why) as found, progress("pruned") as advance:
        removed = found.prune(age, told=advance)
    if as_json:
        show_json({"pruned": removed})
    else:
        out.print(f"pruned {counted(removed, 'job or run', 'jobs and runs')}", markup=False)


def _show(finding: examining.Finding) -> None:
    first, *rest = wrapped(f"{finding.check}: {in_line(finding.message)}", LABEL)
    out.print(f"{finding.level.value:<{LABEL}}", style=COLOURS[finding.level], end="")
    for line in (first, *[" " * LABEL + line for line in rest]):
        out.print(line, markup=False)
    for line in wrapped(as_typed(finding.advice), LABEL) if finding.advice else ():
        out.print(" " * LABEL + line, markup=False)
