"""Commands that steer jobs and runs alike: cancel, retry."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from penstock.app import Penstock
from penstock.cli.frame import BAD, Refusal, out
from penstock.cli.options import App, AsJson, By, DatabaseUrl, Why, steered
from penstock.cli.output import show_json
from penstock.errors import CancelConflict
from penstock.operate import actions
from penstock.operate.jobs import story
from penstock.operate.runs import find_run_or_job
from penstock.pipelines.run import Run

ID = re.compile(r"[0-9a-fA-F-]+")
WHOLE_ID = 32
Jobs = Annotated[list[str], typer.Argument(metavar="ID...", help="ids, or beginnings of them")]


def cancel(
    jobs: Jobs,
    grace: Annotated[
        float, typer.Option(min=0, help="of a run: seconds before what still runs is given up")
    ] = 10.0,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Cancel runs and jobs. At once where they wait; where they run, the handler is told."""
    with steered(app, database, by, why) as found:
        named = _find(found, jobs)
        done = {id for id, is_run in named if is_run and _cancel_run(found.run(id), grace)}
        done |= set(actions.cancel(found, [id for id, is_run in named if not is_run]))
    _answer([id for id, _ in named], done, "cancelled", "was over already", as_json)


def retry(
    jobs: Jobs,
    step: Annotated[str | None, typer.Option(help="of a run: the failed step to do again")] = None,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run failed or cancelled jobs again. They get fresh budgets. With --step KEY or KEY, a failed step of a run."""
    with steered(app, database, by, why) as found:
        if step is None and len(jobs) == 2 and _is_step(found, *jobs):
            jobs, step = jobs[:1], jobs[1]
        named = _find(found, jobs)
        if step is not None:
            _retry_step(found, named, step, as_json)
            return
        for id, is_run in named:
            if is_run:
                raise Refusal(f"{id} is a run: penstock revive {id}, or penstock retry {id} --step KEY")
            _refuse_step(found, id)
        done = set(actions.retry(found, [id for id, _ in named]))
    _answer([id for id, _ in named], done, "will run again", "is neither failed nor cancelled", as_json)


def _is_step(app: Penstock, first: str, second: str) -> bool:
    """Behind a run comes the key of a step, also one that could be the beginning of an id: "add", "bad"."""
    if not ID.fullmatch(second):
        return True
    return len(second) < WHOLE_ID and app.database.read(find_run_or_job, first)[1]


def _find(app: Penstock, prefixes: list[str]) -> list[tuple[str, bool]]:
    return [app.database.read(find_run_or_job, prefix) for prefix in prefixes]


def _cancel_run(run: Run, grace: float) -> bool:
    try:
        run.cancel(grace)
    except CancelConflict:
        return False
    return True


def _retry_step(app: Penstock, named: list[tuple[str, bool]], step: str, as_json: bool) -> None:
    for id, is_run in named:
        if not is_run:
            raise Refusal(f"{id} is a job, not a run: --step names a step of a run")
    revived = {id: app.run(id).retry_step(step).id for id, _ in named}
    if as_json:
        show_json(revived)
    for old, new in revived.items() if not as_json else ():
        out.print(f"{old} goes on as {new}", markup=False)


def _refuse_step(app: Penstock, id: str) -> None:
    told = app.database.read(story, id)
    if told is not None and told.job.run_id is not None:
        run, step = told.job.run_id, told.job.node
        raise Refusal(f"{id} is a step of run {run}, which went on: penstock retry {run} --step {step}")


def _answer(ids: list[str], done: set[str], word: str, otherwise: str, as_json: bool) -> None:
    if as_json:
        show_json({id: id in done for id in ids})
    else:
        for id in ids:
            out.print(f"{id} {word if id in done else otherwise}", markup=False)
    if len(done) < len(set(ids)):
        raise typer.Exit(BAD)
