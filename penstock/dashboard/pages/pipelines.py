"""The list of pipelines, and the page of one: its definition as a graph, its versions, its newest runs, the times of
its steps."""

from __future__ import annotations

import json

from penstock.dashboard.pages.run_graph import graph_data
from penstock.dashboard.pages.runs import difference_data
from penstock.dashboard.views import NotFound, Page, View
from penstock.database.transaction import Transaction
from penstock.errors import PenstockError
from penstock.operate.pages import run_search
from penstock.operate.pages.run_search import RunFilter, StoredVersion
from penstock.pipelines.model.definition import Definition
from penstock.pipelines.model.diff import compare
from penstock.pipelines.pipeline import Pipeline

NEWEST_RUNS = 30
SAMPLED_RUNS = 20


def pipelines(view: View) -> Page:
    """All pipelines that the app knows, and those that only have stored definitions."""
    stored = view.read(run_search.versions)
    active = view.read(run_search.under_way)
    names = sorted({*view.app.pipelines, *stored})
    return Page(
        "pipelines.html", "Pipelines", {"pipelines": [_brief(view, name, stored, active) for name in names]}
    )


def pipeline(view: View) -> Page:
    """One pipeline, by its name; `version` names a stored definition."""
    name = view.text("name")
    if name is None:
        raise NotFound("the address has no name of a pipeline")
    data = view.read(lambda tx: _pipeline(view, tx, name))
    return Page("pipeline.html", name, data, section="pipelines")


def _brief(
    view: View, name: str, stored: dict[str, list[StoredVersion]], active: dict[str, int]
) -> dict[str, object]:
    known = view.app.find_pipeline(name)
    definition = _own(known)
    return {
        "name": name,
        "description": "" if known is None else known.description,
        "parameters": [] if definition is None else list(definition.params),
        "steps": None if definition is None else sum([node.kind.is_step for node in definition.nodes]),
        "known": known is not None,
        "versions": len(stored.get(name, ())),
        "under_way": active.get(name, 0),
    }


def _own(pipeline: Pipeline | None) -> Definition | None:
    """The definition in the app; None if the app has none, or cannot build it."""
    try:
        return None if pipeline is None else pipeline.definition
    except PenstockError:
        return None


def _pipeline(view: View, tx: Transaction, name: str) -> dict[str, object]:
    known = view.app.find_pipeline(name)
    own, versions = _own(known), run_search.versions_of(tx, name)
    shown = _version(tx, view.text("version"), versions) or own or _newest(tx, versions)
    if shown is None or shown.name != name:
        raise NotFound(f"there is no pipeline {name!r}, neither in this app nor in the database")
    newest = run_search.newest_statuses(tx, name, NEWEST_RUNS)
    difference = compare(shown, own) if own is not None and own.hash != shown.hash else None
    return {
        "name": name,
        "description": "" if known is None else known.description,
        "known": known is not None,
        "parameters": list(shown.params),
        "template": json.dumps(dict.fromkeys(shown.params)),
        "hash": shown.hash,
        "is_current": own is not None and own.hash == shown.hash,
        "on_failure": shown.on_failure.value,
        "deadline": shown.deadline,
        "graph": graph_data(shown),
        "versions": [{"hash": one.hash, "created_at": one.created_at} for one in versions],
        "difference": difference_data(difference) if difference else None,
        "runs": run_search.page_of_runs(tx, RunFilter(pipeline=name), 10).runs,
        "outcomes": [{"id": id, "status": status} for id, status in newest],
        "times": run_search.step_times(tx, [id for id, _ in newest[:SAMPLED_RUNS]]),
    }


def _version(tx: Transaction, wanted: str | None, versions: list[StoredVersion]) -> Definition | None:
    found = [one.hash for one in versions if wanted and one.hash.startswith(wanted)]
    text = run_search.definition_text(tx, found[0]) if len(found) == 1 else None
    return None if text is None else Definition.from_text(text)


def _newest(tx: Transaction, versions: list[StoredVersion]) -> Definition | None:
    return _version(tx, versions[0].hash, versions) if versions else None
