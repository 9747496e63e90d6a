"""The graph and the timeline of a run as data: nodes with counts, and the spans of its attempts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from penstock.dashboard.drawing.definition_graph import DefinitionGraph, DrawnNode, definition_graph
from penstock.dashboard.drawing.timeline_svg import SECOND, WAITING, TimelineSpan
from penstock.operate.pages.run_steps import AttemptRow, RelatedRun, StepCounts, StepRow
from penstock.pipelines.model.definition import Definition
from penstock.pipelines.model.expressions import path_of
from penstock.values.status import JobStatus

SPLIT = 5_000_000
"""Microseconds by which the end of an open span moves at a time: in between, the page stays the same."""
MOST_ATTEMPTS = 20


def graph_data(
    definition: Definition,
    known: StepCounts | None = None,
    progress: Mapping[str, tuple[int, int]] | None = None,
    children: Sequence[RelatedRun] = (),
) -> dict[str, object]:
    """A definition as nodes, edges and scopes; with `known`, also the states of a run's steps."""
    graph = definition_graph(definition)
    first_child = {child.node: child.id for child in reversed(children) if child.node is not None}
    return {
        "name": graph.name,
        "is_run": known is not None,
        "nodes": [_node(node, known, first_child) for node in graph.nodes],
        "edges": [
            {"source": edge.source, "target": edge.target, "label": edge.label, "order": edge.order}
            for edge in graph.edges
        ],
        "scopes": _scopes(graph, progress or {}),
    }


def _node(
    node: DrawnNode,
    known: StepCounts | None,
    children: Mapping[str, str],
) -> dict[str, object]:
    told: dict[str, object] = {
        "key": node.key,
        "kind": node.kind,
        "label": node.label,
        "detail": node.detail,
        "inside": list(node.inside),
    }
    if known is not None:
        told |= {
            "counts": dict(known.counts.get(node.key, {})),
            "more": node.key in known.capped,
            "child": children.get(node.key),
        }
    return told


def _scopes(graph: DefinitionGraph, progress: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for key, title in graph.scopes.items():
        ended, width = progress.get(key, (None, None))
        found[key] = {"title": title, "ended": ended, "elements": width}
    return found


def element_name(node: str, path: str) -> str:
    """The name of a step for people: `load[3][17]`."""
    return node + "".join([f"[{index}]" for index in path_of(path)])


def timeline_data(
    steps: Sequence[StepRow], attempts: Mapping[str, Sequence[AttemptRow]], now: int, total: int
) -> dict[str, object]:
    """A row of spans for each step. A span that is not over lasts until `now`."""
    rows = [_row(step, attempts.get(step.id, ()), now) for step in steps]
    return {"rows": rows, "more": max(total - len(rows), 0)}


def _row(step: StepRow, attempts: Sequence[AttemptRow], now: int) -> dict[str, object]:
    spans = attempt_spans(step, attempts[-MOST_ATTEMPTS:], now)
    ran = [span.end - span.start for span in spans if span.kind != WAITING]
    return {
        "name": element_name(step.node, step.path),
        "step": step.node,
        "path": step.path,
        "job": step.id,
        "status": step.status,
        "seconds": sum(ran) / SECOND if ran else None,
        "attempts": len(attempts),
        "spans": [
            {"kind": span.kind, "start_at": span.start, "end_at": span.end, "label": span.label}
            for span in spans
        ],
    }


class TimedJob(Protocol):
    """A job with its times."""

    @property
    def status(self) -> str: ...

    @property
    def created_at(self) -> int: ...

    @property
    def claimed_at(self) -> int | None: ...

    @property
    def finished_at(self) -> int | None: ...


class TimedAttempt(Protocol):
    """An attempt with its times."""

    @property
    def outcome(self) -> str: ...

    @property
    def started_at(self) -> int: ...

    @property
    def finished_at(self) -> int: ...


def attempt_spans(step: TimedJob, attempts: Sequence[TimedAttempt], now: int) -> list[TimelineSpan]:
    """The spans in which a job has waited and run. A span that is not over lasts until `now`."""
    found: list[TimelineSpan] = []
    at = step.created_at if len(attempts) < MOST_ATTEMPTS else attempts[0].started_at
    for place, attempt in enumerate(attempts, 1):
        if attempt.started_at > at:
            found.append(TimelineSpan(WAITING, at, attempt.started_at))
        label = f"attempt {place}" if len(attempts) > 1 else ""
        found.append(TimelineSpan(attempt.outcome, attempt.started_at, attempt.finished_at, label))
        at = max(at, attempt.finished_at)
    if step.status == JobStatus.RUNNING and step.claimed_at is not None:
        if step.claimed_at > at:
            found.append(TimelineSpan(WAITING, at, step.claimed_at))
        found.append(TimelineSpan("running", step.claimed_at, max(now, step.claimed_at)))
    elif step.finished_at is None and now > at:
        found.append(TimelineSpan(WAITING, at, now))
    return found
