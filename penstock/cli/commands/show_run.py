"""Everything about one run, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import shorten

from penstock.app import Penstock
from penstock.cli.commands.audit import plain, show_acts
from penstock.cli.commands.watch import QUIET, fold, in_words, picture, waiting_for
from penstock.cli.exit_codes import out
from penstock.cli.output import is_compact, named, say, show_json, show_table, span
from penstock.errors import PenstockError
from penstock.job import AttemptRecord
from penstock.operate.audit import Act
from penstock.operate.runs import notable_steps
from penstock.pipelines.model.diff import Difference
from penstock.pipelines.model.graph_view import Graph
from penstock.pipelines.run import Run, Step
from penstock.values.escape import in_line
from penstock.values.status import JobStatus, OutcomeKind, Reason, RunStatus

MOST_STEPS = 200
MOST_GIVEN = 300
MARGIN = 20
"""The arguments take two lines of a terminal, less what wrapping leaves free."""
MOST_WORDS = 66
MOST_NAMES = 5
FEW = 20
"""So many steps are all listed, but for those that were skipped; of more, those that failed or are not over."""
FEWEST, LISTED = 2, 12
HEAD, EACH = 14, 3
"""Lines of a screen around the list, and for each step in it."""
UNEVENTFUL = (OutcomeKind.SUCCEEDED,)
FOLDED = (JobStatus.SKIPPED,)


def show_run(
    app: Penstock, run: Run, acts: Sequence[Act], as_json: bool, *, everything: bool = False
) -> None:
    """The run's graph, its steps with their attempts, what went wrong, and what people did about it."""
    if as_json:
        show_json(_plain(run, run.steps()) | {"audit": [plain(act) for act in acts]})
        return
    graph = run.graph()
    _head(run, graph, everything)
    for line in waiting_for(app, run, graph):
        say(f"{line}\n")
    total = sum(node.total for node in graph.nodes)
    few = everything or total <= FEW
    shown = app.database.read(
        notable_steps, run.id, MOST_STEPS if everything else FEW if few else _room(graph)
    )
    if not everything:
        shown = [step for step in shown if step.status not in (FOLDED if few else QUIET)]
    columns = ["step", "status", "reason", "attempts #", "took #", "job", "error"]
    empty = "no step was reached" if not total else "no step has failed or is under way"
    show_table(columns, [_row(step) for step in shown], empty=empty)
    _tell_folded(run, graph, shown)
    if few:
        _attempts(shown)
    show_acts(acts)
    if run.status is RunStatus.SUCCEEDED:
        out.print(f"\nresult: {run.result(1)!r}", markup=False)


def _room(graph: Graph) -> int:
    """How many of many steps are listed: as a screen has room for below the graph."""
    if not is_compact():
        return LISTED
    drawn = len(fold(graph, everything=False)[0])
    return max(FEWEST, min(LISTED, (out.height - drawn - HEAD) // EACH))


def _tell_folded(run: Run, graph: Graph, shown: Sequence[Step]) -> None:
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
    say(f"not listed: {told}; see\n  penstock show {named(run.id)} {way}")


def _names(graph: Graph, status: JobStatus) -> str:
    """The nodes with such steps, a few of them."""
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


def _head(run: Run, graph: Graph, everything: bool) -> None:
    out.print(f"run {run.id}", markup=False)
    if words := run.description:
        out.print(words, markup=False)
    drawn = picture if out.is_terminal else in_words
    out.print(drawn(graph, everything=everything), markup=False)
    if given := ", ".join([f"{name}={value!r}" for name, value in run.args.items()]):
        room = min(MOST_GIVEN, 2 * out.width - MARGIN)
        say(f"given: {shorten(given, room, placeholder=' …')}")
    for reason in run.reasons:
        say(f"{reason.value}: {Reason.stored(reason).explanation}")
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
        say(f"{told}: penstock diff {named(run.id)}")
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
    """An error in a table: all of it is told by `penstock show JOB`."""
    return shorten(error or "", MOST_WORDS, placeholder=" …") if is_compact() else error or ""


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
