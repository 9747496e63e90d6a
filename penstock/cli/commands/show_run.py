"""Everything about one run, for people and for programs."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from textwrap import shorten

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.app import Penstock
from penstock.cli.commands.audit import plain, show_acts
from penstock.cli.exit_codes import err, one_line, out
from penstock.cli.output import show_json, show_table, span
from penstock.errors import DatabaseUnavailable, PenstockError
from penstock.job import AttemptRecord
from penstock.operate.audit import Act
from penstock.operate.runs import notable_steps
from penstock.pipelines.model.diff import Difference
from penstock.pipelines.model.graph_view import Graph, GraphNode
from penstock.pipelines.run import Run, Step
from penstock.values.escape import in_line
from penstock.values.status import JobStatus, OutcomeKind, Reason, RunStatus

# A live picture of a run: its graph, and how far each step is.

INTERVAL, PAUSE = 0.1, 0.5
COLOURS = {
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "halted": "red",
    "cancelled": "yellow",
    "skipped": "dim",
    "waiting": "magenta",
    "available": "blue",
    "scheduled": "blue",
}


def watch(run: Run, timeout: float | None = None, *, silently: bool = False) -> RunStatus:
    """Show a run until it has ended or the time is up; the status it has then."""
    deadline = None if timeout is None else time.monotonic() + timeout
    graph = _look(run, deadline)
    if silently or not out.is_terminal:
        while not graph.status.terminal and not _over(deadline):
            time.sleep(INTERVAL)
            graph = _look(run, deadline)
        if not silently:
            out.print(str(graph), markup=False)
        return graph.status
    with Live(picture(graph), console=out, refresh_per_second=10) as live:
        while not graph.status.terminal and not _over(deadline):
            time.sleep(INTERVAL)
            graph = _look(run, deadline)
            live.update(picture(graph))
    return graph.status


def _look(run: Run, deadline: float | None) -> Graph:
    """How far it is; of a database that is away, as soon as it is back. The run goes on then too."""
    told = False
    while True:
        try:
            return run.graph()
        except DatabaseUnavailable as error:
            if _over(deadline):
                raise
            if not told:
                err.print(f"{one_line(error)} Watching on.", markup=False)
            told = True
            time.sleep(PAUSE)


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def picture(graph: Graph) -> RenderableType:
    """The run as a table: a line for each step, indented by the expands it is in."""
    table = Table.grid(padding=(0, 2))
    for node in graph.nodes:
        if node.kind.is_step:
            table.add_row(*_line(node))
    status = Text(graph.status.value, style=COLOURS.get(graph.status.value, ""))
    return Group(Text.assemble(in_line(graph.pipeline), "  ", status), table)


def _line(node: GraphNode) -> tuple[RenderableType, ...]:
    name = Text("  " * (len(node.inside) + 1) + in_line(node.key))
    total = node.total
    if not total:
        return name, Text("·", style="dim"), Text("")
    done = sum(count for status, count in node.counts.items() if status.terminal)
    bar: RenderableType = (
        ProgressBar(total=total, completed=done, width=20) if total > 1 else _mark(node.counts)
    )
    words = [
        Text(f"{count} {status.value}" if total > 1 else status.value, style=COLOURS.get(status.value, ""))
        for status, count in sorted(node.counts.items())
    ]
    return name, bar, Text(", ").join(words)


def _mark(counts: Mapping[JobStatus, int]) -> Text:
    status = next(iter(counts))
    mark = {JobStatus.SUCCEEDED: "✓", JobStatus.FAILED: "✗", JobStatus.RUNNING: "▶", JobStatus.SKIPPED: "-"}
    return Text(mark.get(status, "○"), style=COLOURS.get(status.value, ""))


MOST_STEPS = 200
MOST_GIVEN = 300
UNEVENTFUL = (OutcomeKind.SUCCEEDED,)


def show_run(app: Penstock, run: Run, acts: Sequence[Act], as_json: bool) -> None:
    """The run's graph, its steps with their attempts, what went wrong, and what people did about it."""
    if as_json:
        show_json(_plain(run, run.steps()) | {"audit": [plain(act) for act in acts]})
        return
    graph = run.graph()
    _head(run, graph)
    shown = app.database.read(notable_steps, run.id, MOST_STEPS)
    show_table(
        ["step", "status", "reason", "attempts #", "took #", "job", "error"],
        [_row(step) for step in shown],
        empty="no step was reached",
    )
    left = sum(node.total for node in graph.nodes) - len(shown)
    if left > 0:
        succeeded = sum(node.counts.get(JobStatus.SUCCEEDED, 0) for node in graph.nodes)
        which = " that succeeded" if left <= succeeded else ""
        out.print(f"\n{left:,} steps{which} are not shown; see --json", markup=False)
    _attempts(shown)
    show_acts(acts)
    if run.status is RunStatus.SUCCEEDED:
        out.print(f"\nresult: {run.result(1)!r}", markup=False)


def failures(app: Penstock, run: Run) -> list[str]:
    """The steps that failed, each in a line with its error."""
    return [
        f"{_name(step)}: {step.error or (step.reason.explanation if step.reason else '')}"
        for step in app.database.read(notable_steps, run.id, MOST_STEPS)
        if step.status is JobStatus.FAILED
    ]


def _head(run: Run, graph: Graph) -> None:
    out.print(f"run {run.id}", markup=False)
    if words := run.description:
        out.print(words, markup=False)
    out.print(picture(graph) if out.is_terminal else str(graph), markup=False)
    if given := ", ".join([f"{name}={value!r}" for name, value in run.args.items()]):
        out.print(f"given: {shorten(given, MOST_GIVEN, placeholder=' …')}", markup=False)
    for reason in run.reasons:
        out.print(f"{reason.value}: {Reason.stored(reason).explanation}", markup=False)
    lineage = {"a step of": run.parent, "revived from": run.revived_from, "re-run of": run.rerun_of}
    for word, other in lineage.items():
        if other is not None:
            out.print(f"{word} {other.id}", markup=False)
    for word, found in (("key", run.key), ("labels", ", ".join(run.labels))):
        if found:
            out.print(f"{word}: {found}", markup=False)
    difference = _difference(run)
    if difference:
        told = f"its definition is not the app's own any more ({difference.summary})"
        out.print(f"{told}: penstock diff {run.id}", markup=False)
    out.print()


def _difference(run: Run) -> Difference | None:
    """How the app's definition differs; None: it knows no such pipeline, or cannot build it."""
    try:
        return run.diff()
    except PenstockError:
        return None


def _attempts(steps: list[Step]) -> None:
    """Every attempt of the steps for which that is more than one success."""
    rows = [
        (_name(step), *_attempt(attempt))
        for step in sorted(steps, key=lambda step: step.id)
        if any(attempt.outcome not in UNEVENTFUL for attempt in step.attempts())
        for attempt in step.attempts()
    ]
    if rows:
        out.print()
        show_table(["step", "attempt #", "outcome", "took #", "process", "error"], rows)


def _attempt(attempt: AttemptRecord) -> tuple[object, ...]:
    took = span((attempt.finished_at - attempt.started_at).total_seconds())
    return attempt.number, attempt.outcome.value, took, attempt.process or "", attempt.error or ""


def _row(step: Step) -> tuple[object, ...]:
    took = (
        span((step.finished_at - step.started_at).total_seconds())
        if step.finished_at and step.started_at
        else ""
    )
    return (
        _name(step),
        step.status.value,
        step.reason.value if step.reason else "",
        len(step.attempts()),
        took,
        step.id,
        step.error or "",
    )


def _name(step: Step) -> str:
    return step.key + "".join(f"[{index}]" for index in step.path)


def _plain(run: Run, steps: list[Step]) -> dict[str, object]:
    graph, origin, difference = run.graph(), run.revived_from, _difference(run)
    repeated, parent = run.rerun_of, run.parent
    return {
        "id": run.id,
        "run": run.id,
        "pipeline": graph.pipeline,
        "description": run.description or None,
        "arguments": run.args,
        "status": graph.status.value,
        "reasons": [reason.value for reason in run.reasons],
        "key": run.key,
        "labels": run.labels,
        "parent": parent.id if parent is not None else None,
        "revived_from": origin.id if origin is not None else None,
        "rerun_of": repeated.id if repeated is not None else None,
        "definition": run.definition,
        "current": None if difference is None else not difference,
        "result": run.result(1) if graph.status is RunStatus.SUCCEEDED else None,
        "graph": [
            {
                "key": node.key,
                "after": list(node.after),
                "inside": list(node.inside),
                "counts": {status.value: count for status, count in node.counts.items()},
            }
            for node in graph.nodes
            if node.kind.is_step
        ],
        "steps": [_plain_step(step) for step in steps],
    }


def _plain_step(step: Step) -> dict[str, object]:
    return {
        "key": step.key,
        "path": list(step.path),
        "job": step.id,
        "status": step.status.value,
        "reason": step.reason.value if step.reason else None,
        "error": step.error,
        "output": step.output,
        "started_at": step.started_at.isoformat() if step.started_at else None,
        "finished_at": step.finished_at.isoformat() if step.finished_at else None,
        "attempts": [
            {
                "number": attempt.number,
                "process": attempt.process,
                "started_at": attempt.started_at.isoformat(),
                "finished_at": attempt.finished_at.isoformat(),
                "outcome": attempt.outcome.value,
                "error": attempt.error,
                "traceback": attempt.traceback,
            }
            for attempt in step.attempts()
        ],
    }
