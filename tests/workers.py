"""Real worker processes for tests: `penstock worker` on a module written by the test.

A worker is the leader of a process group of its own. At the end the whole group is killed; if pytest
itself is killed, the operating system kills the leader.
"""

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGTERM, Signals
from textwrap import dedent

from tests import forkserver
from tests.forkserver import Program

CHECKOUT = Path(__file__).resolve().parents[1]


@dataclass(slots=True)
class WorkerProcess:
    process: BaseProcess
    log_file: Path

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    @property
    def running(self) -> bool:
        return self.process.exitcode is None

    def send(self, number: Signals) -> None:
        """To the supervisor, or to the only process."""
        if self.running:
            os.kill(self.pid, number)

    def send_all(self, number: Signals) -> None:
        """To the supervisor and all its children."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def stop(self, timeout: float = 30) -> int:
        """Stop gracefully; the exit code."""
        self.send(SIGTERM)
        return self.wait(timeout)

    def kill(self) -> None:
        """As a power cut would, children and all."""
        self.send_all(SIGKILL)
        self.process.kill()
        self.process.join()

    def wait(self, timeout: float = 30) -> int:
        self.process.join(timeout)
        assert self.process.exitcode is not None, f"process {self.pid} did not end within {timeout} s"
        return self.process.exitcode

    def children(self) -> list[int]:
        """The processes under the supervisor."""
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.pid)], capture_output=True, text=True)
        return [int(pid) for pid in found.stdout.split()]


@dataclass(slots=True)
class Workers:
    """Starts workers in one folder, on modules written there."""

    folder: Path
    database_url: str
    started: list[WorkerProcess] = field(default_factory=list)

    def write_module(self, text: str, name: str = "shop") -> str:
        """A module for workers, and for the test itself to read; the app in it is `app`.

        In one step: a worker that was started before may be importing it.
        """
        file = self.folder / f"{name}.py"
        draft = file.with_suffix(".draft")
        draft.write_text(dedent(text))
        draft.replace(file)
        return name

    def __call__(
        self,
        *options: str,
        module: str | None = None,
        target: str = "shop:app",
        env: Mapping[str, str] | None = None,
    ) -> WorkerProcess:
        """Start `penstock worker TARGET OPTIONS`, with the module's text written first if given."""
        if module is not None:
            self.write_module(module, target.partition(":")[0])
        return self.python("-m", "penstock", "worker", target, *options, env=env)

    def python(self, *arguments: str, env: Mapping[str, str] | None = None) -> WorkerProcess:
        """Start any Python program in the same surroundings."""
        log_file = self.folder / f"process-{len(self.started)}.log"
        program = Program(arguments, self.folder, self._environment(env or {}), log_file)
        worker = WorkerProcess(forkserver.start(program), log_file)
        self.started.append(worker)
        return worker

    def _environment(self, more: Mapping[str, str]) -> dict[str, str]:
        path = os.pathsep.join([str(self.folder), str(CHECKOUT)])
        ours = {"PYTHONPATH": path, "PENSTOCK_DATABASE_URL": self.database_url, "PYTHONUNBUFFERED": "1"}
        return {**os.environ, **ours, **more}


@contextmanager
def workers(folder: Path, database_url: str, show: Callable[[str], None]) -> Iterator[Workers]:
    starter = Workers(folder, database_url)
    try:
        yield starter
    finally:
        for number, worker in enumerate(starter.started):
            worker.send_all(SIGCONT)
            worker.kill()
            show(f"--- log of process {number} ---\n{worker.log[-20_000:]}")
