"""Everything about one run, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten

from penstock.cli.audit import plain, show_acts
from penstock.cli.frame import out
from penstock.cli.output import show_json, show_table, span
from penstock.cli.watch import picture
from penstock.errors import PenstockError
from penstock.job import AttemptRecord
from penstock.operate.audits import Act
from penstock.pipelines.difference import Difference
from penstock.pipelines.run import Run
from penstock.pipelines.step import Step
from penstock.values.status import JobStatus, OutcomeKind, Reason, RunStatus

MOST_STEPS = 200
MOST_GIVEN = 300
UNEVENTFUL = (OutcomeKind.SUCCEEDED,)


def show_run(run: Run, acts: Sequence[Act], as_json: bool) -> None:
    """The run's graph, its steps with their attempts, what went wrong, and what people did about it."""
    steps = run.steps()
    if as_json:
        show_json(_plain(run, steps) | {"audit": [plain(act) for act in acts]})
        return
    _head(run)
    shown = sorted(steps, key=lambda step: (step.status is JobStatus.SUCCEEDED, step.id))[:MOST_STEPS]
    rows = [_row(step) for step in sorted(shown, key=lambda step: step.id)]
    show_table(
        ["step", "status", "reason", "attempts #", "took #", "job", "error"],
        rows,
        empty="no step was reached",
    )
    if len(steps) > MOST_STEPS:
        out.print(
            f"\n{len(steps) - MOST_STEPS:,} steps that succeeded are not shown; see --json", markup=False
        )
    _attempts(shown)
    show_acts(acts)
    if run.status is RunStatus.SUCCEEDED:
        out.print(f"\nresult: {run.result(1)!r}", markup=False)


def failures(run: Run) -> list[str]:
    """The steps that failed, each in a line with its error."""
    return [
        f"{_name(step)}: {step.error or (step.reason.explanation if step.reason else '')}"
        for step in run.steps()
        if step.status is JobStatus.FAILED
    ]


def _head(run: Run) -> None:
    out.print(f"run {run.id}", markup=False)
    if words := run.description:
        out.print(words, markup=False)
    out.print(picture(run.graph()) if out.is_terminal else str(run.graph()), markup=False)
    if given := ", ".join([f"{name}={value!r}" for name, value in run.args.items()]):
        out.print(f"given: {shorten(given, MOST_GIVEN, placeholder=' …')}", markup=False)
    for reason in run.reasons:
        out.print(f"{reason.value}: {Reason(reason).explanation}", markup=False)
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
