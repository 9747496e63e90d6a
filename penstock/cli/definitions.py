"""Commands that set what an app says now against a run of before: compare, move, run again."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.frame import BAD, Refusal
from penstock.cli.options import App, AsJson, By, DatabaseUrl, Why, opened, steered
from penstock.cli.output import tell
from penstock.cli.runs import RunId, find_pipeline, new_arguments, the_run
from penstock.operate.runs import find_definition
from penstock.pipelines.difference import Difference, compare
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
        raise Refusal("a hash goes with a pipeline: penstock diff shop:enrich_users HASH")
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
    with steered(app, database, by, why) as found:
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
    with steered(app, database, by, why) as found:
        old = the_run(found, run)
        new = old.rerun(new_arguments(arguments))
    told = f"{old.id} is run again as {new.id}"
    tell(told, {"run": new.id, "rerun_of": old.id}, as_json=as_json)


def _of_pipeline(target: str, against: str | None) -> Difference:
    if against is None:
        raise Refusal(f"against which definition? penstock diff {target} HASH, or penstock diff RUN")
    pipeline = find_pipeline(target)
    app: Any = pipeline.host
    try:
        version.ensure(app.database, upgrade=False)
        return compare(app.database.read(find_definition, pipeline.name, against), pipeline.definition)
    finally:
        app.close()
