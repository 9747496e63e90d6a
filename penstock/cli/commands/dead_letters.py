"""`penstock dead-letters`: lists jobs whose budget is spent, runs them again, or discards them."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import shorten
from typing import Annotated

import typer

from penstock.app import Penstock
from penstock.cli.exit_codes import BAD, UsageError, out
from penstock.cli.options import App, AsJson, By, DatabaseUrl, Why, Yes, acting_on, opened
from penstock.cli.output import progress, show_json, show_table, when
from penstock.operate import actions
from penstock.operate import dead_letters as operate_letters
from penstock.operate.jobs import find_job
from penstock.values.plain import counted

Ids = Annotated[list[str] | None, typer.Argument(metavar="[JOB]...", help="ids, in short or whole")]
OfTask = Annotated[str | None, typer.Option("--task", help="only this task")]
OfQueue = Annotated[str | None, typer.Option("--queue", help="only this queue")]
OfReason = Annotated[str | None, typer.Option("--reason", help="only this reason, such as retries_exhausted")]
All = Annotated[bool, typer.Option("--all", help="all of them")]
Action = Callable[[Penstock, list[str], actions.Progress], list[str]]

MOST_WORDS = 120

letters = typer.Typer(
    invoke_without_command=True, help="List jobs whose budget is spent; retry or discard them."
)


@letters.callback()
def default(
    ctx: typer.Context,
    task: OfTask = None,
    queue: OfQueue = None,
    reason: OfReason = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most this many")] = 50,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List jobs whose budget is spent; retry or discard them."""
    if ctx.invoked_subcommand is None:
        list_letters(task, queue, reason, limit, app, database, as_json)


@letters.command("list")
def list_letters(
    task: OfTask = None,
    queue: OfQueue = None,
    reason: OfReason = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most this many")] = 50,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the latest dead letters and their last errors."""
    with opened(app, database) as found:
        rows = found.database.read(operate_letters.dead_letters, task, queue, reason, limit)
        sums = found.database.read(operate_letters.by_reason)
    if as_json:
        show_json(rows)
        return
    cells = [
        (row.id, row.task, row.queue, row.reason, when(row.failed_at), _short(row.error)) for row in rows
    ]
    show_table(["id", "task", "queue", "reason", "failed (UTC)", "error"], cells, empty="no dead letters")
    total = sum(count for _, _, count in sums)
    if total > len(rows):
        out.print(f"\n{len(rows):,} of {total:,}; more with --limit", markup=False)


@letters.command("retry")
def retry_letters(
    ids: Ids = None,
    task: OfTask = None,
    queue: OfQueue = None,
    reason: OfReason = None,
    everything: All = False,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run dead letters again, with fresh budgets: by id, by filter, or --all."""
    with acting_on(app, database, by, why) as found:
        chosen = _choose(found, ids, task, queue, reason, everything)
        _act(found, chosen, actions.retry, "retried", as_json)


@letters.command("discard")
def discard_letters(
    ids: Ids = None,
    task: OfTask = None,
    queue: OfQueue = None,
    reason: OfReason = None,
    everything: All = False,
    yes: Yes = False,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Take dead letters off the list; their history stays until it is pruned."""
    with acting_on(app, database, by, why) as found:
        chosen = _choose(found, ids, task, queue, reason, everything)
        if len(chosen) > 1 and not yes and not as_json and out.is_terminal:
            typer.confirm(f"discard {counted(len(chosen), 'dead letter')}?", abort=True)
        _act(found, chosen, actions.discard, "discarded", as_json)


def _choose(
    app: Penstock,
    ids: list[str] | None,
    task: str | None,
    queue: str | None,
    reason: str | None,
    everything: bool,
) -> list[str]:
    if ids:
        return [app.database.read(find_job, id) for id in ids]
    if not (everything or task or queue or reason):
        raise UsageError("which ones? Give ids, a filter (--task, --queue, --reason), or --all")
    return app.database.read(operate_letters.dead_ids, task, queue, reason, None)


def _act(app: Penstock, ids: list[str], action: Action, word: str, as_json: bool) -> None:
    with progress(word, len(ids)) as advance:
        done = action(app, ids, advance)
    if as_json:
        show_json({word: done})
    else:
        out.print(f"{word} {len(done):,} of {len(ids):,}", markup=False)
        if len(done) < len(ids) and action is actions.retry:
            out.print(
                "a step whose run has gone on without it is done again by: penstock revive RUN", markup=False
            )
    if len(done) < len(ids):
        raise typer.Exit(BAD)


def _short(error: str | None) -> str:
    return shorten(error or "", MOST_WORDS, placeholder=" …")
