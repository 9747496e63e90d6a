"""The commands, put together. Each group of them is a file of its own."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer

from penstock.cli import frame
from penstock.cli.audit import audit
from penstock.cli.catalogue import pipelines
from penstock.cli.definitions import diff, migrate_run, rerun
from penstock.cli.demo import demo
from penstock.cli.health import health
from penstock.cli.letters import letters
from penstock.cli.look import jobs, processes, show, status
from penstock.cli.producing import enqueue
from penstock.cli.reconcilers import reconcilers
from penstock.cli.runs import pause, resume, revive, run, runs, then
from penstock.cli.signals import signal, token
from penstock.cli.steer import cancel, retry
from penstock.cli.upkeep import check, doctor, migrate, prune
from penstock.cli.worker import worker

COMMANDS: list[Callable[..., None]] = [
    worker,
    run,
    runs,
    pipelines,
    enqueue,
    status,
    jobs,
    show,
    processes,
    reconcilers,
    audit,
    cancel,
    pause,
    resume,
    revive,
    rerun,
    retry,
    signal,
    token,
    then,
    diff,
    migrate_run,
    migrate,
    check,
    doctor,
    health,
    prune,
    demo,
]
GROUPS = {"dead-letters": letters}


def build() -> typer.Typer:
    """The command line as typer sees it."""
    cli = typer.Typer(
        name="penstock",
        cls=frame.Frame,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    cli.callback()(root)
    for command in COMMANDS:
        cli.command(command.__name__.replace("_", "-"))(command)
    for name, group in GROUPS.items():
        cli.add_typer(group, name=name)
    return cli


def show_version(wanted: bool) -> None:
    if wanted:
        frame.out.print(f"penstock {sys.modules['penstock'].__version__}")
        raise typer.Exit


def root(
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
    version: Annotated[  # noqa: ARG001 - its callback answers it
        bool,
        typer.Option("--version", is_eager=True, callback=show_version, help="show the version and exit"),
    ] = False,
) -> None:
    """Durable pipelines on the database you already have."""
    frame.wish_debugging(debug)


def main(arguments: list[str] | None = None) -> None:
    """The `penstock` command."""
    try:
        build()(sys.argv[1:] if arguments is None else arguments)
    except Exception:
        frame.err.print(traceback.format_exc(), markup=False)
        frame.err.print("penstock: this is an error in Penstock itself; please report it", markup=False)
        sys.exit(frame.BROKEN)
