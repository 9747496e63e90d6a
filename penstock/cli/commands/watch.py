"""`penstock watch`: shows a run or a job live until it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, TypeVar

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.app import Penstock
from penstock.cli.exit_codes import BAD, UsageError, as_typed, err, one_line, out
from penstock.cli.options import App, AsJson, DatabaseUrl, opened
from penstock.cli.output import named, show_json, when
from penstock.errors import DatabaseUnavailable
from penstock.operate.diagnosis.explain import why_pending
from penstock.operate.jobs import JobReport, job_report
from penstock.operate.runs import OpenWait, find_run_or_job, open_waits
from penstock.pipelines.model.graph_view import Graph, GraphNode
from penstock.pipelines.run import Run
from penstock.values.escape import in_line
from penstock.values.plain import counted
from penstock.values.status import JobStatus, Reason, RunStatus

INTERVAL, PAUSE = 0.1, 0.5
MOST_NODES = 20
"""In a larger graph only nodes with a step that failed or has not ended are drawn."""
MOST_WAITS = 5
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
QUIET = frozenset({JobStatus.SUCCEEDED, JobStatus.SKIPPED, JobStatus.CANCELLED})
T = TypeVar("T")


def watch(
    subject: Annotated[str, typer.Argument(metavar="RUN|JOB", help="its id, in short or whole")],
    timeout: Annotated[float | None, typer.Option(min=0, help="seconds to watch it at most")] = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Watch a run or a job until it has ended. It goes on when you stop. Exit code 1: it did not succeed."""
    with opened(app, database) as found:
        id, is_run = found.database.read(find_run_or_job, subject)
        if is_run:
            status: str = watch_run(found, found.run(id), timeout, silently=as_json).value
        else:
            status = watch_job(found, id, timeout, silently=as_json).value
    if as_json:
        show_json({"id": id, "status": status})
    else:
        out.print(as_typed(f"{named(id)} {status}; see: penstock show {named(id)}"), markup=False)
    if status != JobStatus.SUCCEEDED:
        raise typer.Exit(BAD)


def watch_run(app: Penstock, run: Run, timeout: float | None = None, *, silently: bool = False) -> RunStatus:
    """Show a run until it has ended or the time is up; returns its last status."""
    told: set[str] = set()

    def look() -> tuple[Graph, list[str]]:
        graph = run.graph()
        return graph, waiting_for(app, run, graph)

    def show(seen: tuple[Graph, list[str]]) -> None:
        for line in seen[1]:
            if line not in told:
                err.print(line, markup=False)
                told.add(line)

    graph, _ = _watched(
        look,
        lambda seen: seen[0].status.terminal,
        lambda seen: picture(seen[0], seen[1]),
        None if silently else show,
        timeout,
    )
    if not silently and not out.is_terminal:
        out.print(str(graph), markup=False)
    return graph.status


def watch_job(app: Penstock, id: str, timeout: float | None = None, *, silently: bool = False) -> JobStatus:
    """Show a job until it has ended or the time is up; returns its last status."""
    told: set[str] = set()

    def look() -> JobReport:
        found = app.database.read(job_report, id)
        if found is None:
            raise UsageError(f"job {id} is gone: it was pruned meanwhile")
        return found

    def show(seen: JobReport) -> None:
        line = _status_line(seen)
        if line not in told:
            out.print(line, markup=False)
            told.add(line)

    seen = _watched(
        look,
        lambda seen: seen.job.status.terminal,
        lambda seen: Text(_status_line(seen), style=COLOURS.get(seen.job.status.value, "")),
        None if silently else show,
        timeout,
    )
    return seen.job.status


def _watched(
    read: Callable[[], T],
    is_over: Callable[[T], bool],
    draw: Callable[[T], RenderableType],
    show: Callable[[T], None] | None,
    timeout: float | None,
) -> T:
    """Poll until it has ended. On a terminal the picture is live; elsewhere `show` prints it, if it is given."""
    deadline = None if timeout is None else time.monotonic() + timeout
    seen = _look(read, deadline)
    live = Live(draw(seen), console=out, refresh_per_second=10) if show and out.is_terminal else None
    if live is not None:
        live.start()
    try:
        while not is_over(seen) and not _over(deadline):
            if show is not None and live is None:
                show(seen)
            time.sleep(INTERVAL)
            seen = _look(read, deadline)
            if live is not None:
                live.update(draw(seen))
        return seen
    finally:
        if live is not None:
            live.stop()


def _look(read: Callable[[], T], deadline: float | None) -> T:
    """Read the state; wait while the database cannot be reached."""
    told = False
    while True:
        try:
            return read()
        except DatabaseUnavailable as error:
            if _over(deadline):
                raise
            if not told:
                err.print(f"{one_line(error)} Watching on.", markup=False)
            told = True
            time.sleep(PAUSE)


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


def _status_line(told: JobReport) -> str:
    """The state of a job, in one line."""
    job = told.job
    words = [f"{in_line(job.task)}: {job.status.value}"]
    if job.reason:
        words.append(Reason.stored(job.reason).explanation)
    if job.waits_for:
        words.append(f"waits for {job.waits_for}")
    if told.progress and job.status is JobStatus.RUNNING:
        words.append(f"{told.progress[0]:.0%} {in_line(told.progress[1])}".rstrip())
    if job.attempt > 1:
        words.append(f"attempt {job.attempt}")
    if told.due_at is not None:
        words.append(f"due {when(told.due_at)} UTC")
    return ", ".join(words)


# The waits of a run for signals: since when, until when, and the command that answers.


def waiting_for(app: Penstock, run: Run, graph: Graph) -> list[str]:
    """Lines about the signals that steps of a run wait for; about a run that is paused, or has not begun."""
    pending: list[str] = []
    waits: list[OpenWait] = []
    if graph.status is RunStatus.PENDING:
        silence = app.settings.reap_after
        pending = [cause.text for cause in app.database.read(why_pending, run.id, silence)]
    if any(node.counts.get(JobStatus.WAITING) for node in graph.nodes):
        waits = app.database.read(open_waits, run.id, MOST_WAITS + 1)
    return waiting_lines(run.id, graph.status, pending, waits)


def waiting_lines(run: str, status: RunStatus, pending: list[str], waits: Sequence[OpenWait]) -> list[str]:
    """The same lines from rows that were read: the causes of a pending run, and one wait more than are listed."""
    lines = list(pending)
    if status is RunStatus.PAUSED:
        lines.append(f"paused; go on with: penstock resume {named(run)}")
    lines += [_answer(run, wait) for wait in waits[:MOST_WAITS]]
    if len(waits) > MOST_WAITS:
        lines.append("and more wait for a signal")
    return lines


def _answer(run: str, wait: OpenWait) -> str:
    at = "".join(f"[{index}]" for index in wait.path)
    until = ""
    if wait.until_at is not None:
        then = "then it fails" if wait.default is None else f"then it has {in_line(wait.default)}"
        until = f" until {when(wait.until_at)} ({then})"
    path = f" --path {'.'.join(map(str, wait.path))}" if wait.path else ""
    command = f"penstock signal {named(run)} {in_line(wait.signal)} VALUE{path}"
    return f"{in_line(wait.node)}{at} waits since {when(wait.since_at)} UTC{until}; answer with:\n  {command}"


# The picture of a run.


def picture(graph: Graph, words: list[str] | None = None, *, everything: bool = False) -> RenderableType:
    """The run as a table: a line for each step, indented by the expands it is in."""
    table = Table.grid(padding=(0, 2))
    drawn, folded = fold(graph, everything=everything)
    for node in drawn:
        table.add_row(*_line(node))
    status = Text(graph.status.value, style=COLOURS.get(graph.status.value, ""))
    rest = [Text(f"  {folded}")] if folded else []
    return Group(
        Text.assemble(in_line(graph.pipeline), "  ", status),
        table,
        *rest,
        *[Text(line) for line in words or ()],
    )


def in_words(graph: Graph, *, everything: bool = False) -> str:
    """The same as plain text, for files and pipes."""
    drawn, folded = fold(graph, everything=everything)
    if not folded:
        return str(graph)
    return f"{Graph(graph.pipeline, graph.status, tuple(drawn))}\n  {folded}"


def fold(graph: Graph, *, everything: bool) -> tuple[list[GraphNode], str]:
    """The nodes to draw, and a line about the others."""
    steps = [node for node in graph.nodes if node.kind.is_step]
    if everything or len(steps) <= MOST_NODES:
        return steps, ""
    eventful = [node for node in steps if node.counts.keys() - QUIET]
    drawn = sorted(eventful, key=lambda node: JobStatus.FAILED not in node.counts)[:MOST_NODES]
    others = [node for node in steps if node not in drawn]
    counts: dict[str, int] = {}
    for node in others:
        for status, count in node.counts.items():
            counts[status.value] = counts.get(status.value, 0) + count
    unreached = sum(not node.total for node in others)
    told = [f"{count:,} {status}" for status, count in sorted(counts.items())]
    told += [f"{unreached:,} not reached"] if unreached else []
    shown = f"and {len(others):,} more" if drawn else counted(len(others), "step")
    return drawn, f"{shown}: {', '.join(told)}"


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
