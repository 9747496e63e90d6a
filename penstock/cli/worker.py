"""`penstock worker`: run jobs until told to stop."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.app import Penstock
from penstock.cli.finding import load_app
from penstock.context import running
from penstock.runtime import signals
from penstock.runtime.options import WorkerOptions, details
from penstock.runtime.serve import serve_alone
from penstock.runtime.supervisor import Supervisor
from penstock.settings import Settings
from penstock.telemetry import logs


def worker(
    target: Annotated[str | None, typer.Argument(metavar="MODULE:APP", help="default: $PENSTOCK_APP")] = None,
    queues: Annotated[str | None, typer.Option(help='such as "mail:10,default"; default: all queues')] = None,
    processes: Annotated[
        int | None, typer.Option(min=0, help="worker processes under a supervisor; 0: all in one")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="most jobs one process runs at a time")
    ] = None,
    role: Annotated[str | None, typer.Option(help="all, worker, advancer or reconciler")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning, error or critical")] = None,
    log_format: Annotated[str | None, typer.Option(help="text or json")] = None,
) -> None:
    """Run jobs until told to stop.

    SIGTERM or SIGINT: finish what is running, give back the rest. A second one: stop at once. SIGUSR1: show all
    stacks.
    """
    app = load_app(target)
    wanted = Settings.load(
        database_url=app.settings.database_url,
        queues=queues or app.settings.queues,
        processes=app.settings.processes if processes is None else processes,
        concurrency=concurrency or app.settings.concurrency,
        role=role or app.settings.role,
        log_level=log_level or app.settings.log_level,
        log_format=log_format or app.settings.log_format,
    )
    logs.configure(wanted.log_level, wanted.log_format, _around)
    logs.attach(app.events)
    signals.show_where_it_dies()
    raise typer.Exit(_run(app, wanted))


def _run(app: Penstock, wanted: Settings) -> int:
    told = details(wanted.queues, wanted.concurrency)
    options = WorkerOptions(wanted.queues, wanted.concurrency, wanted.role, None, told)
    if wanted.processes == 0:
        return serve_alone(app, options)
    return Supervisor(app, options, wanted.processes).run()


def _around() -> dict[str, object]:
    """Lines that a handler logs say which job it runs."""
    job = running.get()
    return {} if job is None else {"job": job.id, "task": job.task}
