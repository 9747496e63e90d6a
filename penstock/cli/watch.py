"""A live picture of a run: its graph, and how far each step is."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.cli.frame import err, one_line, out
from penstock.errors import DatabaseUnavailable
from penstock.pipelines.picture import Graph, GraphNode
from penstock.pipelines.run import Run
from penstock.values.status import JobStatus, RunStatus

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
    return Group(Text.assemble(graph.pipeline, "  ", status), table)


def _line(node: GraphNode) -> tuple[RenderableType, ...]:
    name = Text("  " * (len(node.inside) + 1) + node.key)
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
