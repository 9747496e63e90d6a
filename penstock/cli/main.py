"""Assembles the command line; each group of commands is a file in `commands/`."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer

from penstock.cli import exit_codes
from penstock.cli.commands.admin import check, doctor, migrate, prune
from penstock.cli.commands.audit import audit
from penstock.cli.commands.dashboard import dashboard
from penstock.cli.commands.dead_letters import letters
from penstock.cli.commands.definitions import diff, migrate_run, pipelines, rerun
from penstock.cli.commands.enqueue import enqueue
from penstock.cli.commands.jobs import explain, jobs, processes, show, status
from penstock.cli.commands.mcp import mcp
from penstock.cli.commands.queues import queues
from penstock.cli.commands.reconcilers import reconcilers
from penstock.cli.commands.runs import cancel, fork, pause, resume, retry, revive, run, runs, then
from penstock.cli.commands.schedules import schedules
from penstock.cli.commands.signals import signal, token
from penstock.cli.commands.watch import watch
from penstock.cli.commands.worker import health, worker
from penstock.cli.demo.demo import demo

COMMANDS: list[Callable[..., None]] = [
    worker,
    run,
    runs,
    pipelines,
    enqueue,
    status,
    jobs,
    show,
    watch,
    explain,
    processes,
    reconcilers,
    audit,
    cancel,
    pause,
    resume,
    revive,
    fork,
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
    mcp,
    health,
    prune,
    dashboard,
    demo,
]
GROUPS = {"dead-letters": letters, "queues": queues, "schedules": schedules}


def build() -> typer.Typer:
    """The command line as typer sees it."""
    cli = typer.Typer(
        name="penstock",
        cls=exit_codes.CommandGroup,
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
        exit_codes.out.print(f"penstock {sys.modules['penstock'].__version__}")
        raise typer.Exit


def root(
    debug: Annotated[bool, typer.Option("--debug", help="show tracebacks")] = False,
    version: Annotated[  # noqa: ARG001 - its callback answers it
        bool,
        typer.Option("--version", is_eager=True, callback=show_version, help="show the version and exit"),
    ] = False,
) -> None:
    """Durable pipelines on the database you already have."""
    exit_codes.set_debugging(debug)


def main(arguments: list[str] | None = None) -> None:
    """The `penstock` command."""
    try:
        build()(sys.argv[1:] if arguments is None else arguments)
    except Exception:
        exit_codes.err.print(traceback.format_exc(), markup=False)
        exit_codes.err.print("penstock: this is an error in Penstock itself; please report it", markup=False)
        sys.exit(exit_codes.BROKEN)
