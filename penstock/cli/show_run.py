"""Everything about one run, for people and for programs."""

from __future__ import annotations

from penstock.cli.frame import out
from penstock.cli.output import show_json, show_table, span
from penstock.cli.watch import picture
from penstock.pipelines.run import Run, Step
from penstock.values.status import JobStatus, Reason, RunStatus

MOST_STEPS = 200


def show_run(run: Run, as_json: bool) -> None:
    """The run's graph, its steps, and what went wrong."""
    steps = run.steps()
    if as_json:
        show_json(_plain(run, steps))
        return
    out.print(f"run {run.id}", markup=False)
    out.print(picture(run.graph()) if out.is_terminal else str(run.graph()))
    for reason in run.reasons:
        out.print(f"{reason.value}: {Reason(reason).explanation}", markup=False)
    origin = run.revived_from
    if origin is not None:
        out.print(f"revived from {origin.id}", markup=False)
    out.print()
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
    if run.status is RunStatus.SUCCEEDED:
        out.print(f"\nresult: {run.result(1)!r}", markup=False)


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
    return {
        "run": run.id,
        "pipeline": run.pipeline,
        "status": run.status.value,
        "reasons": [reason.value for reason in run.reasons],
        "steps": [
            {
                "key": step.key,
                "path": list(step.path),
                "job": step.id,
                "status": step.status.value,
                "reason": step.reason.value if step.reason else None,
                "error": step.error,
                "started_at": step.started_at.isoformat() if step.started_at else None,
                "finished_at": step.finished_at.isoformat() if step.finished_at else None,
                "attempts": len(step.attempts()),
            }
            for step in steps
        ],
    }
