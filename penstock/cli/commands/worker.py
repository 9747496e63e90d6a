"""`penstock worker`: run jobs until told to stop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.app import Penstock
from penstock.cli import autoreload
from penstock.cli.exit_codes import BAD, UsageError, out
from penstock.cli.load_app import load_app
from penstock.cli.options import App, AsJson, DatabaseUrl, opened
from penstock.cli.output import show_json, span
from penstock.context import running
from penstock.runtime import os_signals
from penstock.runtime.liveness.host_identity import host_name
from penstock.runtime.supervisor.supervisor import Supervisor
from penstock.runtime.supervisor.worker_process import serve_alone
from penstock.runtime.worker import WorkerOptions, details
from penstock.settings import Settings
from penstock.telemetry import logs
from penstock.telemetry.events import MetricsServed, ProcessStarted, QueueUnused, WorkerAnnounced
from penstock.values.lazy_import import Lazy
from penstock.values.parse import nearest

if TYPE_CHECKING:
    from penstock.cli import worker_monitor
    from penstock.operate import queues as operate_queues
else:
    worker_monitor, operate_queues = Lazy("penstock.cli.worker_monitor"), Lazy("penstock.operate.queues")


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
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="serve /metrics, /livez and /readyz on this port")
    ] = None,
    reload: Annotated[
        bool, typer.Option(autoreload.OPTION, help="for development: start again when a source file changes")
    ] = False,
) -> None:
    """Run jobs until told to stop.

    SIGTERM or SIGINT: finish what is running, give back the rest. A second one: stop at once. SIGUSR1: show all
    stacks.
    """
    if reload:
        raise typer.Exit(autoreload.supervise())
    app = load_app(target)
    more = {"log_level": log_level, "log_format": log_format, "metrics_port": metrics_port}
    wanted = _settings(app, queues, processes, concurrency, role, **more)
    raise typer.Exit(_run(app, wanted))


def _settings(
    app: Penstock,
    queues: str | None,
    processes: int | None,
    concurrency: int | None,
    role: str | None,
    **more: object,
) -> Settings:
    """The app's settings with the options that were given."""
    given = {"queues": queues, "processes": processes, "concurrency": concurrency, "role": role, **more}
    own = {name: getattr(app.settings, name) for name in (*given, "database_url", "metrics_host")}
    return Settings.load(**own | {name: value for name, value in given.items() if value not in (None, "")})


def _run(app: Penstock, wanted: Settings) -> int:
    logs.configure(wanted.log_level, wanted.log_format, _around)
    logs.attach(app.events, tracebacks=app.settings.log_tracebacks)
    os_signals.show_where_it_dies()
    told = details(wanted.queues, wanted.concurrency)
    options = WorkerOptions(wanted.queues, wanted.concurrency, wanted.role, None, told)
    _announce(app, wanted, str(told["queues"]))
    monitor = _monitor(app, wanted)
    if wanted.processes:
        return Supervisor(app, options, wanted.processes, monitor).run()
    if monitor is None:
        return serve_alone(app, options)
    monitor.start()
    try:
        return serve_alone(app, replace(options, turned=monitor.turned))
    finally:
        monitor.close()


def _monitor(app: Penstock, wanted: Settings) -> worker_monitor.WorkerMonitor | None:
    if wanted.metrics_port is None:
        return None
    made = worker_monitor.WorkerMonitor(app, wanted.metrics_host, wanted.metrics_port, wanted.processes)
    app.events.emit(MetricsServed(wanted.metrics_host, made.server.port))
    return made


def _announce(app: Penstock, wanted: Settings, queues: str) -> None:
    """Log what this worker can do, once its first process is registered."""
    announced = WorkerAnnounced(
        app.settings.shown_url,
        queues,
        tuple(sorted(app.tasks)),
        len(app.pipelines),
        len(app.reconcilers),
        wanted.processes,
        wanted.concurrency,
    )

    def once(_: ProcessStarted) -> None:
        stop()
        app.events.emit(announced)
        named = [limit.name for limit in wanted.queues or ()]
        for queue, advice in operate_queues.find_unused(app, named).items():
            app.events.emit(QueueUnused(queue, advice))

    stop = app.events.on(ProcessStarted, once)


def _around() -> dict[str, object]:
    """Adds the running job to the log lines of its handler."""
    job = running.get()
    return {} if job is None else {"job": job.id, "task": job.task}


# The command for probes: says whether a worker of this host is alive.

ROLES = ("all", "worker", "advancer", "reconciler")
SUPERVISOR = "supervisor"


def health(
    role: Annotated[str | None, typer.Option(help="only processes with this role, such as worker")] = None,
    everywhere: Annotated[bool, typer.Option("--everywhere", help="on any host, not only this one")] = False,
    app: App = None,
    database: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a worker of this host is alive. As the database sees it; exit code 1: none is."""
    if role is not None and role not in ROLES:
        raise UsageError(f"there is no role {role!r}{nearest(role, ROLES)}")
    with opened(app, database) as found:
        rows = found.processes()
        patience = found.settings.reap_after
    here = host_name()
    asked = [
        row
        for row in rows
        if row.role != SUPERVISOR and role in (None, row.role) and (everywhere or row.host == here)
    ]
    alive = [row for row in asked if not row.is_silent(patience)]
    if as_json:
        show_json({"healthy": bool(alive), "alive": alive})
    else:
        what = f"{role or 'worker'} process {'anywhere' if everywhere else f'on {here}'}"
        heard = min([row.silence for row in asked], default=None)
        last = "" if heard is None else f"; one was heard of {span(heard)} ago"
        told = f"{len(alive)} alive" if alive else f"no {what} is alive{last}"
        out.print(told, markup=False)
    if not alive:
        raise typer.Exit(BAD)
