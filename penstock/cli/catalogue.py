"""The command that lists pipelines: those that an app declares, and those that were ever run."""

from __future__ import annotations

from penstock.app import Penstock
from penstock.cli.options import App, AsJson, DatabaseUrl, opened
from penstock.cli.output import show_json, show_table
from penstock.errors import PenstockError
from penstock.operate.catalogue import Entry, stored
from penstock.pipelines.definition import Definition
from penstock.pipelines.difference import SHORT
from penstock.pipelines.pipeline import Pipeline


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
    """As the app has it now; else as it was stored last."""
    entry = known or Entry(name)
    pipeline = app.pipelines.get(name)
    definition = None if pipeline is None else _definition(pipeline)
    if pipeline is None or definition is None:
        return entry
    return entry.now(definition, pipeline.description)


def _definition(pipeline: Pipeline) -> Definition | None:
    """None: it cannot be built; `penstock check` tells why."""
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
