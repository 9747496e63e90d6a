"""OS signals of a process: stop, stop at once, and write all stacks.

A signal handler only sets a flag and wakes the thread that waits. Stack dumps are made by the interpreter itself, so
that they come also from a process whose main thread is stuck.
"""

from __future__ import annotations

import asyncio
import faulthandler
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import FrameType

from penstock.runtime.stacks import of_tasks

Handler = Callable[[int], None]

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
HURRY = signal.SIGQUIT
"""From a supervisor to its children: stop at once. SIGTERM may reach a child twice without meaning that."""
ECHO = 0.1
"""Seconds within which a second stop signal counts as the first one, sent on by another process."""
NO_FILE = (io.UnsupportedOperation, AttributeError, ValueError, RuntimeError)
"""Errors that are raised where stderr is no file."""


def that_stop() -> tuple[signal.Signals, ...]:
    """The signals that stop a process in order. A terminal that is closed sends SIGHUP, unless the parent ignores
    it."""
    hears_of_it = signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    return (*STOP_SIGNALS, signal.SIGHUP) if hears_of_it else STOP_SIGNALS


@contextmanager
def handling(handlers: Mapping[signal.Signals, Handler | None]) -> Iterator[None]:
    """Handle these signals inside the block; None ignores one. From the main thread only."""
    before = {number: signal.getsignal(number) for number in handlers}
    for number, handler in handlers.items():
        signal.signal(number, signal.SIG_IGN if handler is None else _called(handler))
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous if previous is not None else signal.SIG_DFL)


@contextmanager
def held_back() -> Iterator[None]:
    """Block signals: between a fork and the child's own handlers none may get lost."""
    ours = {signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGHUP}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ours)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def dumping_stacks(also: Callable[[], None] = lambda: None) -> Iterator[None]:
    """On SIGUSR1 write the stacks of all threads and asyncio tasks to stderr, then do `also`."""

    def rest(_number: int) -> None:
        _write_tasks()
        also()

    faulthandler.unregister(signal.SIGUSR1)  # a fork inherits the parent's
    with handling({signal.SIGUSR1: rest}):
        registered = _dump_threads_first()
        try:
            yield
        finally:
            if registered:
                faulthandler.unregister(signal.SIGUSR1)


def show_where_it_dies() -> None:
    """Have a crash of the interpreter, such as in C code of a library, write the stacks of all threads to stderr."""
    with suppress(*NO_FILE):
        faulthandler.enable(file=sys.stderr)


def name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _called(handler: Handler) -> Callable[[int, FrameType | None], None]:
    return lambda number, _frame: handler(number)


def _dump_threads_first() -> bool:
    try:
        faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True, chain=True)
    except NO_FILE:
        return False
    return True


def _write_tasks() -> None:
    """Write the stacks of the tasks of the main thread's event loop."""
    try:
        tasks = asyncio.all_tasks(asyncio.get_running_loop())
    except RuntimeError:
        tasks = set()
    sys.stderr.write(f"penstock: process {os.getpid()} has {len(tasks)} asyncio tasks\n{of_tasks(tasks)}")
    sys.stderr.flush()
