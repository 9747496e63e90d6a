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

Jobs = Annotated[list[str], typer.Argument(metavar="JOB...", help="ids, or beginnings of them")]


def cancel(jobs: Jobs, app: App = None, database: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Cancel jobs: at once where they wait, by telling the handler where they run."""
    _steer(jobs, app, database, as_json, actions.cancel, "cancelled", "was over already")


def retry(jobs: Jobs, app: App = None, database: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Run failed or cancelled jobs again, with fresh budgets."""
    _steer(jobs, app, database, as_json, actions.retry, "will run again", "is neither failed nor cancelled")


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
        ids = [found.database.read(find_job, job) for job in jobs]
        done = set(action(found, ids))
    if as_json:
        show_json({id: id in done for id in ids})
    else:
        for id in ids:
            out.print(f"{id} {word if id in done else otherwise}", markup=False)
    if len(done) < len(set(ids)):
        raise typer.Exit(BAD)
