"""Commands that steer single jobs: cancel, retry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from penstock.app import Penstock
from penstock.cli.frame import BAD, out
from penstock.cli.options import App, AsJson, DatabaseUrl, opened
from penstock.cli.output import show_json
from penstock.operate import actions
from penstock.operate.jobs import find_job
from penstock.operate.runs import find_run

Jobs = Annotated[list[str], typer.Argument(metavar="ID...", help="ids, or beginnings of them")]


def cancel(
    jobs: Jobs,
    grace: Annotated[
        float, typer.Option(min=0, help="of a run: seconds before what still runs is given up")
    ] = 10.0,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Cancel runs and jobs: at once where they wait, by telling the handler where they run."""

    def action(found: Penstock, ids: list[str]) -> list[str]:
        runs = [id for id in ids if found.database.read(find_run, id) is not None]
        done = [id for id in runs if found.run(id).cancel(grace)]
        return done + actions.cancel(found, [id for id in ids if id not in runs])

    _steer(jobs, app, database, as_json, action, "cancelled", "was over already")


def retry(
    jobs: Jobs,
    step: Annotated[str | None, typer.Option(help="of a run: the failed step to do again")] = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run failed or cancelled jobs again, with fresh budgets; with --step, a failed step of a run."""

    def action(found: Penstock, ids: list[str]) -> list[str]:
        if step is None:
            return actions.retry(found, ids)
        for id in ids:
            out.print(f"{id} goes on as {found.run(id).retry_step(step).id}", markup=False)
        return ids

    _steer(jobs, app, database, as_json, action, "will run again", "is neither failed nor cancelled")


def _steer(
    jobs: list[str],
    app: str | None,
    database: str | None,
    as_json: bool,
    action: Callable[[Penstock, list[str]], list[str]],
    word: str,
    otherwise: str,
) -> None:
    with opened(app, database) as found:
        ids = [found.database.read(find_run, job) or found.database.read(find_job, job) for job in jobs]
        done = set(action(found, ids))
    if as_json:
        show_json({id: id in done for id in ids})
    else:
        for id in ids:
            out.print(f"{id} {word if id in done else otherwise}", markup=False)
    if len(done) < len(set(ids)):
        raise typer.Exit(BAD)
