"""`penstock queues`: lists queues, pauses and resumes them, and gives workers other queues."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.commands.jobs import pause_words
from penstock.cli.exit_codes import UsageError, out
from penstock.cli.options import App, AsJson, By, DatabaseUrl, Why, acting_on, opened
from penstock.cli.output import show_json, show_table, span, tell
from penstock.operate.overview import QueueCounts
from penstock.operate.queues import find_unused

queues = typer.Typer(help="List queues; pause and resume them.", rich_markup_mode=None)
Queue = Annotated[str, typer.Argument(metavar="QUEUE", help="its name")]


@queues.callback(invoke_without_command=True)
def list_queues(
    context: typer.Context, app: App = None, database: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """List queues in which something waits, runs or has failed, and those that are paused."""
    if context.invoked_subcommand is not None:
        return
    with opened(app, database) as found:
        rows = found.queues()
    if as_json:
        show_json(rows)
        return
    columns = [
        "queue",
        "state",
        "available #",
        "limited #",
        "scheduled #",
        "running #",
        "failed #",
        "oldest waits #",
    ]
    show_table(columns, [_row(row) for row in rows], empty="no queue has jobs, and none is paused")
    for row in rows:
        if row.paused_at is not None:
            out.print(f"\n{pause_words(row)}", markup=False)


@queues.command()
def pause(
    queue: Queue,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have no worker claim from a queue, until it is resumed."""
    with acting_on(app, database, by, why) as found:
        changed = found.pause_queue(queue)
        unused = find_unused(found, [queue])
    words = f"queue {queue} is paused" if changed else f"queue {queue} was paused already"
    words += "".join([f"; nothing has used it yet{advice}" for advice in unused.values()])
    told = {"queue": queue, "paused": True, "changed": changed, "used": not unused}
    tell(words, told, as_json=as_json)


@queues.command()
def resume(
    queue: Queue,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have workers claim from a queue again."""
    with acting_on(app, database, by, why) as found:
        changed = found.resume_queue(queue)
    words = f"queue {queue} is resumed" if changed else f"queue {queue} was not paused"
    tell(words, {"queue": queue, "paused": False, "changed": changed}, as_json=as_json)


@queues.command("set")
def set_queues(
    wanted: Annotated[
        str | None, typer.Argument(metavar="QUEUES", help='such as "mail:10,default", or "all"')
    ] = None,
    host: Annotated[str | None, typer.Option(help="only the workers of this host")] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="back to the queues that the workers were started with")
    ] = False,
    by: By = None,
    why: Why = None,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Have running workers take from other queues than they were started with."""
    if (wanted is None) is not reset:
        raise UsageError("name the queues, or give --reset")
    with acting_on(app, database, by, why) as found:
        changed = found.set_queues(wanted, host)
    who = f"workers of {host}" if host else "all workers"
    words = f"{who} take from {wanted or 'the queues they were started with'}"
    told = {"queues": wanted, "host": host, "changed": changed}
    tell(words if changed else f"{words} already", told, as_json=as_json)


def _row(row: QueueCounts) -> tuple[object, ...]:
    state = "paused" if row.paused_at is not None else "open"
    counts = (row.available, row.limited, row.scheduled, row.running, row.failed)
    return row.queue, state, *counts, span(row.lag)
