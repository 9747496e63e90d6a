"""`penstock worker --autoreload`: starts the worker again when a source file changes, for development.

The worker is a process of its own. Before it is started again it gets two stop signals, so that it does not wait for
its handlers: it gives its jobs back, and they spend nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from penstock.cli.exit_codes import err
from penstock.runtime import os_signals

OPTION = "--autoreload"
LOOK_EVERY = 0.3
LAST_MOMENT = 10.0
"""Seconds that a worker may take to leave at once."""
NOT_SOURCES = frozenset({"__pycache__", "node_modules", "site-packages"})

Times = Mapping[str, int]


def supervise(folder: Path | None = None, command: Sequence[str] | None = None) -> int:
    """Run this command without its option, again after each change; returns the exit code of the last run."""
    folder = folder or Path.cwd()
    command = command or [sys.executable, *(each for each in sys.orig_argv[1:] if each != OPTION)]
    reloader = Reloader(folder, command)
    handlers: dict[signal.Signals, os_signals.Handler | None] = dict.fromkeys(
        os_signals.that_stop(), reloader.pass_on
    )
    with os_signals.handling(handlers):
        return reloader.run()


class Reloader:
    """Runs one worker process, and starts it again after a change."""

    def __init__(self, folder: Path, command: Sequence[str]) -> None:
        self.folder = folder
        self.command = command
        self.child: subprocess.Popen[bytes] | None = None
        self.stop_signal: int | None = None
        """The signal that asked for a stop."""

    @property
    def stopping(self) -> bool:
        """True if a stop was asked for."""
        return self.stop_signal is not None

    def pass_on(self, number: int) -> None:
        """Handle a stop signal. Ctrl-C at a terminal also reaches the worker, which counts both as one."""
        self.stop_signal = number
        if self.child is not None:
            self.child.send_signal(number)

    def run(self) -> int:
        while True:
            seen = source_times(self.folder)
            self.child = subprocess.Popen(self.command)
            if (
                self.stop_signal is not None
            ):  # the stop was requested while there was no worker, or for an old one
                self.child.send_signal(self.stop_signal)
            changed = self._changed(seen)
            if changed is None and not self.stopping and self.child.wait() != 0:
                err.print("penstock: the worker ended; it is started again when a file changes", markup=False)
                changed = self._changed(seen, alone=True)
            if changed is None:
                code = self.child.wait()
                return code if code >= 0 else 128 - code  # the exit code that a shell shows for a signal
            err.print(f"penstock: {changed} has changed; starting again", markup=False)
            self._end_child()

    def _changed(self, seen: Times, *, alone: bool = False) -> str | None:
        """Wait until a file has changed; returns its name. None: the worker ended, or a stop was requested."""
        while not self.stopping and (alone or self.child is None or self.child.poll() is None):
            now = source_times(self.folder)
            if now != seen:
                return min(name for name in {*now, *seen} if now.get(name) != seen.get(name))
            time.sleep(LOOK_EVERY)
        return None

    def _end_child(self) -> None:
        assert self.child is not None
        for _ in range(2):  # the second signal stops it at once
            if self.child.poll() is None:
                self.child.send_signal(signal.SIGTERM)
                time.sleep(2 * os_signals.ECHO)
        try:
            self.child.wait(LAST_MOMENT)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def source_times(folder: Path) -> dict[str, int]:
    """The time of the last change of each Python file below the folder, without environments and hidden folders."""
    return dict(_files(str(folder)))


def _files(folder: str) -> Iterator[tuple[str, int]]:
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    if any(entry.name == "pyvenv.cfg" for entry in entries):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in NOT_SOURCES:
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                yield from _files(entry.path)
            elif entry.name.endswith(".py"):
                yield entry.path, entry.stat().st_mtime_ns
        except OSError:
            continue
