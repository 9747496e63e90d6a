"""Programs of a chaos run: fresh interpreters, each the leader of a process group of its own.

Nothing is shared with the harness but the folder; if the harness is killed, the operating system kills the leaders, and
their children notice.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGKILL, Signals

from tests.servers.server import as_child
from tests.workers import CHECKOUT


@dataclass(slots=True)
class Program:
    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def code(self) -> int | None:
        return self.process.poll()

    def send(self, number: Signals) -> None:
        """To the leader only."""
        if self.running:
            self.process.send_signal(number)

    def send_all(self, number: Signals) -> None:
        """To the whole group, whether or not its leader is still there."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def kill(self) -> None:
        self.send_all(SIGKILL)
        self.process.wait()

    def looks(self) -> str:
        """What its threads are doing, as far as the system knows: for one that should be gone."""
        tasks = Path(f"/proc/{self.pid}/task").glob("*")
        return "; ".join(f"{_line(task / 'comm')} in {_line(task / 'wchan')}" for task in tasks)

    def children(self) -> list[int]:
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.pid)], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]


def _line(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return "?"


@dataclass(slots=True)
class Programs:
    """Starts them, and ends all of them."""

    folder: Path
    started: list[Program] = field(default_factory=list)

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], inside: Sequence[str] = ()
    ) -> Program:
        """`inside`: what the command begins with, for one that runs in a network of its own."""
        path = os.pathsep.join([str(self.folder), str(CHECKOUT)])
        log_file = self.folder / f"process-{len(self.started)}.log"
        with log_file.open("wb") as log:
            process = subprocess.Popen(
                [*inside, *as_child([sys.executable, *arguments], SIGKILL, who="same")],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        program = Program(process, log_file)
        self.started.append(program)
        return program

    def end(self) -> None:
        for program in self.started:
            program.send_all(SIGCONT)
            program.kill()
