"""Real processes that start in milliseconds: forked from one that has everything imported.

A program started here is what `python ARGUMENTS` would run, in a session, folder and environment of its own; it only
does not spend a second of processor time on imports.
"""

import multiprocessing
import os
import runpy
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType
from uuid import uuid4

from penstock.runtime.liveness import host_identity
from tests.servers.child import die_with_parent

SHARED_MEMORY = "PENSTOCK_TEST_HEARTH"
"""A folder: processes that are given the same see at once when one of them is killed. Without it, no process sees
another."""
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["pytest", "penstock.cli", "tests.forkserver", "tests.preloaded", "tests.process.scenes"]
)


@dataclass(frozen=True, slots=True)
class Program:
    """`python ARGUMENTS` in a folder; what it says goes into files, into one if only `out` is given."""

    arguments: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    out: Path
    err: Path | None = None


def start(program: Program) -> BaseProcess:
    process = FORKS.Process(target=_become, args=(program,))
    ours = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")  # or our own program would be run there first
    try:
        process.start()
    finally:
        sys.modules["__main__"] = ours
    return process


def said_in(folder: Path) -> tuple[Path, Path]:
    """Files for what a program says, aloud and as an error."""
    return folder / f"{uuid4()}.out", folder / f"{uuid4()}.err"


def finished(program: Program, timeout: float = 100) -> CompletedProcess[str]:
    """Run a program to its end; what it said."""
    process = start(program)
    process.join(timeout)
    assert process.exitcode is not None, f"{program.arguments} did not end within {timeout} s"
    said = [file.read_text() if file else "" for file in (program.out, program.err)]
    return CompletedProcess(program.arguments, process.exitcode, *said)


def _become(program: Program) -> None:
    die_with_parent(os.getppid(), signal.SIGKILL)
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Under nohup, or in the background of a shell, it is inherited as ignored.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.chdir(program.folder)
    os.environ.clear()
    os.environ.update(program.environment)
    live_at(program.environment.get(SHARED_MEMORY))
    _redirect(program)
    path = program.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = ["" if program.arguments[0] in ("-m", "-c") else str(program.folder), *filter(None, path)]
    start_up = program.folder / "sitecustomize.py"
    if start_up.exists():  # as a fresh interpreter would
        runpy.run_path(str(start_up))
    _run(program.arguments)


def live_at(hearth: str | None) -> None:
    """Most tests are about what is found out by silence: their processes are machines of their own."""
    host_identity.SHARED_MEMORY = Path(hearth) if hearth is not None else None


def _redirect(program: Program) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(program.out, flags, 0o644), 1)
    os.dup2(1 if program.err is None else os.open(program.err, flags, 0o644), 2)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering=1), open(2, "w", buffering=1)  # noqa: SIM115


def _run(arguments: Sequence[str]) -> None:
    match arguments:
        case ["-m", module, *rest]:
            sys.argv = [module, *rest]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *rest]:
            sys.argv = ["-c", *rest]
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case [file, *rest]:
            sys.argv = [file, *rest]
            runpy.run_path(file, run_name="__main__")
