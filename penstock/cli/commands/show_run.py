"""`penstock show RUN`: everything about one run, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import shorten
from typing import Any, cast

from penstock.app import Penstock
from penstock.cli.commands.audit import plain, show_acts
from penstock.cli.commands.watch import MOST_WAITS, QUIET, fold, in_words, picture, waiting_lines
from penstock.cli.exit_codes import out
from penstock.cli.output import is_compact, named, say, show_table, span, stream_json
from penstock.errors import PenstockError
from penstock.job import AttemptRecord
from penstock.operate.run_report import RunReport, RunResult, pages_of_steps, run_report
from penstock.operate.runs import notable_steps
from penstock.pipelines.advance.read import RunStatusRow
from penstock.pipelines.model.diff import Difference, compare, current
from penstock.pipelines.model.graph_view import Graph
from penstock.pipelines.run import Run, Step
from penstock.values.escape import in_line
from penstock.values.status import JobStatus, OutcomeKind, Reason
from penstock.values.typed_json.json_text import decode

MOST_ACTS = 100
MOST_STEPS = 200
SHOWN_RESULT = 1_000
LEAST_GIVEN, MOST_GIVEN = 20, 300
MARGIN = 20
"""Characters for the arguments: two lines of a terminal, less what wrapping leaves free."""
MOST_WORDS = 66
MOST_NAMES = 5
FEW = 20
"""If a run has no more steps than this, all but skipped ones are listed; else those that failed or have not ended."""
FEWEST, LISTED = 2, 12
HEAD, EACH = 14, 3
"""Lines of a screen around the list, and lines for each step in it."""
UNEVENTFUL = (OutcomeKind.SUCCEEDED,)
FOLDED = (JobStatus.SKIPPED,)
LINEAGE = {
    "parent": "a step of",
    "revived_from": "revived from",
    "forked_from": "forked from",
    "rerun_of": "re-run of",
}


def show_run(app: Penstock, run: str, as_json: bool, *, everything: bool = False) -> None:
    """Show the run's graph, its steps with their attempts and errors, and the acts of operators."""

    def limit(graph: Graph) -> int:
        if as_json:
            return 0  # all steps are read in pages
        return MOST_STEPS if everything else FEW if _total(graph) <= FEW else _room(graph)

    state = app.engine.engine_state
    report = app.database.read(run_report, state, run, MOST_ACTS, MOST_WAITS + 1, limit, as_json)
    if as_json:
        pages = pages_of_steps(app.database, state, report)
        stream_json(_plain(app, report), "steps", ([_plain_step(step) for step in page] for page in pages))
        return
    _show(app, report, everything)


def _total(graph: Graph) -> int:
    return sum(node.total for node in graph.nodes)


def _show(app: Penstock, report: RunReport, everything: bool) -> None:
    graph, run = report.graph, report.run
    _head(app, report, everything)
    for line in waiting_lines(run.id, run.status, report.pending, report.waits):
        say(f"{line}\n")
    total, shown = _total(graph), report.steps
    few = everything or total <= FEW
    if not everything:
        shown = [step for step in shown if step.status not in (FOLDED if few else QUIET)]
    columns = ["step", "status", "reason", "attempts #", "took #", "job", "error"]
    empty = "no step was reached" if not total else "no step has failed or is under way"
    show_table(columns, [_row(step) for step in shown], empty=empty)
    _tell_folded(run.id, graph, shown)
    if few:
        _attempts(shown)
    show_acts(report.acts)
    if report.result is not None:
        out.print(f"\nresult: {_result_words(run.id, report.result)}", markup=False)


def _result_words(run: str, result: RunResult) -> str:
    """The result as text, cut if it is long."""
    whole = f"all of it: penstock show {named(run)} --json"
    if not result.is_read:
        steps = "a step" if result.steps == 1 else f"{result.steps:,} steps"
        return f"{result.size:,} characters, from {steps}; {whole}"
    text = repr(result.value)
    return (
        text if len(text) <= SHOWN_RESULT else f"{text[:SHOWN_RESULT]} … ({len(text):,} characters; {whole})"
    )


def _room(graph: Graph) -> int:
    """How many steps of a large run are listed: as many as fit on a screen below the graph."""
    if not is_compact():
        return LISTED
    drawn = len(fold(graph, everything=False)[0])
    return max(FEWEST, min(LISTED, (out.height - drawn - HEAD) // EACH))


def _tell_folded(run: str, graph: Graph, shown: Sequence[Step]) -> None:
    """How many steps are not listed, by their status, and which were skipped."""
    seen = Counter(step.status for step in shown)
    counts: Counter[JobStatus] = Counter()
    for node in graph.nodes:
        counts.update(node.counts)
    left = {status: count - seen[status] for status, count in sorted(counts.items()) if count > seen[status]}
    if not left:
        return
    names = _names(graph, JobStatus.SKIPPED)
    told = ", ".join(
        f"{count:,} {status.value}{names if status is JobStatus.SKIPPED else ''}"
        for status, count in left.items()
    )
    way = "--json" if len(shown) >= MOST_STEPS else "--all"
    out.print()
    say(f"not listed: {told}; see\n  penstock show {named(run)} {way}")


def _names(graph: Graph, status: JobStatus) -> str:
    """The names of nodes with such steps, at most a few."""
    nodes = [in_line(node.key) for node in graph.nodes if node.counts.get(status)]
    more = f" and {len(nodes) - MOST_NAMES} more" if len(nodes) > MOST_NAMES else ""
    return f" ({', '.join(nodes[:MOST_NAMES])}{more})"


def failures(app: Penstock, run: Run) -> list[str]:
    """The steps that failed, each in a line with its error."""
    return [
        f"{_name(step)}: {step.error or (step.reason.explanation if step.reason else '')}"
        for step in app.database.read(notable_steps, run.id, MOST_STEPS)
        if step.status is JobStatus.FAILED
    ]


def _head(app: Penstock, report: RunReport, everything: bool) -> None:
    run, graph = report.run, report.graph
    out.print(f"run {run.id}", markup=False)
    if words := _description(app, run):
        out.print(words, markup=False)
    drawn = picture if out.is_terminal else in_words
    out.print(drawn(graph, everything=everything), markup=False)
    if given := ", ".join([f"{name}={value!r}" for name, value in _arguments(run).items()]):
        room = max(LEAST_GIVEN, min(MOST_GIVEN, 2 * out.width - MARGIN))
        say(f"given: {shorten(given, room, placeholder=' …')}")
    for reason in run.reasons:
        known = Reason.stored(reason)
        say(f"{known.value}: {known.explanation}")
    for word, other in _lineage(run).items():
        if other is not None:
            out.print(f"{LINEAGE[word]} {other}", markup=False)
    for word, found in (("key", run.key), ("labels", ", ".join(report.labels))):
        if found:
            out.print(f"{word}: {in_line(found)}", markup=False)
    difference = _difference(app, report)
    if difference:
        told = f"its definition is not the app's own any more ({difference.summary})"
        say(f"{told}: penstock diff {named(run.id)}")
    out.print()


def _description(app: Penstock, run: RunStatusRow) -> str:
    pipeline = app.find_pipeline(run.pipeline)
    return "" if pipeline is None else pipeline.description


def _arguments(run: RunStatusRow) -> dict[str, Any]:
    return cast("dict[str, Any]", decode(run.args))


def _lineage(run: RunStatusRow) -> dict[str, str | None]:
    """The runs from which this one was made."""
    return {
        "parent": run.parent_run,
        "revived_from": run.revived_from if run.forked_from is None else None,
        "forked_from": run.forked_from,
        "rerun_of": run.rerun_of,
    }


def _difference(app: Penstock, report: RunReport) -> Difference | None:
    """How the app's definition differs; None: the app has no such pipeline, or cannot build it."""
    try:
        return compare(report.wiring.definition, current(app, report.run.pipeline).definition)
    except PenstockError:
        return None


def _attempts(steps: list[Step]) -> None:
    """Print every attempt of the steps with several attempts, unless all of these were uneventful."""
    rows = [
        (_name(step), *_attempt(attempt))
        for step in sorted(steps, key=lambda step: step.id)
        if len(step.attempts()) > 1 and any(attempt.outcome not in UNEVENTFUL for attempt in step.attempts())
        for attempt in step.attempts()
    ]
    if rows:
        out.print()
        show_table(["step", "attempt #", "outcome", "took #", "process", "error"], rows)


def _attempt(attempt: AttemptRecord) -> tuple[object, ...]:
    took = span((attempt.finished_at - attempt.started_at).total_seconds())
    return attempt.number, attempt.outcome.value, took, attempt.process or "", _words(attempt.error)


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
        _words(step.error),
    )


def _words(error: str | None) -> str:
    """An error, shortened for a table; `penstock show JOB` prints all of it."""
    return shorten(error or "", MOST_WORDS, placeholder=" …") if is_compact() else error or ""


def _name(step: Step) -> str:
    return step.key + "".join(f"[{index}]" for index in step.path)


def _plain(app: Penstock, report: RunReport) -> dict[str, object]:
    run, difference = report.run, _difference(app, report)
    return {
        "id": run.id,
        "run": run.id,
        "pipeline": run.pipeline,
        "description": _description(app, run) or None,
        "arguments": _arguments(run),
        "status": run.status.value,
        "reasons": [Reason.stored(reason).value for reason in run.reasons],
        "key": run.key,
        "labels": report.labels,
        **_lineage(run),
        "definition": run.definition,
        "current": None if difference is None else not difference,
        "result": report.result.value if report.result is not None else None,
        "graph": [
            {
                "key": node.key,
                "after": list(node.after),
                "inside": list(node.inside),
                "counts": {status.value: count for status, count in node.counts.items()},
            }
            for node in report.graph.nodes
            if node.kind.is_step
        ],
        "audit": [plain(act) for act in report.acts],
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
