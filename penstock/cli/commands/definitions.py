"""Commands about definitions: compare a run with the app's definition, migrate it, run it again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.app import Penstock
from penstock.cli.commands.runs import RunId, find_pipeline, new_arguments, the_run
from penstock.cli.exit_codes import BAD, UsageError
from penstock.cli.options import App, AsJson, By, DatabaseUrl, Why, acting_on, opened
from penstock.cli.output import show_json, show_table, tell
from penstock.errors import PenstockError
from penstock.operate.runs import Entry, find_definition, stored
from penstock.pipelines.model.definition import Definition
from penstock.pipelines.model.diff import SHORT, Difference, compare
from penstock.pipelines.pipeline import Pipeline
from penstock.schema import version


def diff(
    target: Annotated[
        str, typer.Argument(metavar="RUN|MODULE:PIPELINE", help="a run, or a pipeline and a hash")
    ],
    against: Annotated[
        str | None, typer.Argument(metavar="[HASH]", help="of a stored definition, or the beginning of it")
    ] = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Compare a run with the app's definition. Or a pipeline with a stored one. Exit code 1: there is a difference."""
    if ":" in target:
        found = _of_pipeline(target, against)
    elif against is not None:
        raise UsageError("a hash goes with a pipeline: penstock diff shop:enrich_users HASH")
    else:
        with opened(app, database) as opened_app:
            found = the_run(opened_app, target).diff()
    tell(str(found), found, as_json=as_json)
    if found:
        raise typer.Exit(BAD)


def migrate_run(
    run: RunId,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Move a run to the app's definition. The run is under way, and all it already has must be the same there."""
    with acting_on(app, database, by, why) as found:
        moved = the_run(found, run)
        done = moved.migrate()
    word = "goes on with the app's definition" if done else "has the app's definition already"
    tell(f"{moved.id} {word}", {moved.id: done}, as_json=as_json)


def rerun(
    run: RunId,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARG]...", help="other arguments than it had")
    ] = None,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Repeat a run that has ended. A new run, from the beginning, with the app's definition."""
    with acting_on(app, database, by, why) as found:
        old = the_run(found, run)
        new = old.rerun(new_arguments(arguments))
    told = f"{old.id} is run again as {new.id}"
    tell(told, {"run": new.id, "rerun_of": old.id}, as_json=as_json)


def _of_pipeline(target: str, against: str | None) -> Difference:
    if against is None:
        raise UsageError(f"against which definition? penstock diff {target} HASH, or penstock diff RUN")
    pipeline = find_pipeline(target)
    app: Any = pipeline.host
    try:
        version.ensure(app.database, upgrade=False)
        return compare(app.database.read(find_definition, pipeline.name, against), pipeline.definition)
    finally:
        app.close()


# The command that lists pipelines: those that an app declares, and those that have run at some time.


def pipelines(app: App = None, database: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """List pipelines. What each is for, its parameters and steps, and how many of its runs are under way."""
    with opened(app, database) as found:
        known = found.database.read(stored)
        entries = [_entry(found, name, known.get(name)) for name in sorted({*found.pipelines, *known})]
    if as_json:
        show_json(entries)
        return
    columns = ["pipeline", "parameters", "steps #", "definition", "versions #", "under way #", "description"]
    show_table(columns, [_row(entry) for entry in entries], empty="no pipelines")


def _entry(app: Penstock, name: str, known: Entry | None) -> Entry:
    """The pipeline as the app declares it, or else its newest stored definition."""
    entry = known or Entry(name)
    pipeline = app.pipelines.get(name)
    definition = None if pipeline is None else _definition(pipeline)
    if pipeline is None or definition is None:
        return entry
    return entry.now(definition, pipeline.description)


def _definition(pipeline: Pipeline) -> Definition | None:
    """The definition; None if it cannot be built: `penstock check` says why."""
    try:
        return pipeline.definition
    except PenstockError:
        return None


def _row(entry: Entry) -> tuple[object, ...]:
    return (
        entry.pipeline,
        ", ".join(entry.parameters),
        entry.steps,
        entry.definition[:SHORT],
        entry.versions,
        entry.under_way,
        entry.description,
    )
