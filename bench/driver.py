"""Starting agents, and what a workload is given to work with: one system on one fresh database."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from signal import SIGKILL
from typing import Any

from bench.field import CHECKOUT, Contender
from bench.marks import Marks
from bench.server import Database
from bench.statements import FINISHED, UNFINISHED
from tests.servers.postgres import Postgres
from tests.servers.server import as_child

Answer = dict[str, Any]
PATIENCE = 300
"""No agent takes longer than that, in seconds."""
TICK = os.sysconf("SC_CLK_TCK")
_names = count(1)


class AgentFailed(Exception):
    """An agent ended without an answer."""


class Agent:
    """A process at work for us."""

    def __init__(self, contender: Contender, command: str, url: str, folder: Path, options: Answer) -> None:
        self.errors = folder / f"{command}-{next(_names)}.log"
        self.command = f"{contender.name} {command}"
        arguments = [contender.python, "-m", "bench.agent", contender.name, command, url, str(folder)]
        with self.errors.open("wb") as log:
            self.process = subprocess.Popen(
                as_child([*arguments, json.dumps(options)], SIGKILL, who="same"),
                cwd=CHECKOUT,
                env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._line("ready")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def answer(self) -> Answer:
        found: Answer = json.loads(self._line())
        self.process.wait()
        return found

    def _line(self, expected: str | None = None) -> str:
        assert self.process.stdout is not None
        watchdog = threading.Timer(PATIENCE, self.process.kill)
        watchdog.start()
        try:
            return self._next_line(expected)
        finally:
            watchdog.cancel()

    def _next_line(self, expected: str | None) -> str:
        assert self.process.stdout is not None
        while line := self.process.stdout.readline().strip():
            if expected is None or line == expected:
                return line
        raise AgentFailed(f"{self.command}: {self.errors.read_text(errors='replace')[-3000:]}")

    @property
    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    @property
    def peak_megabytes(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
        return 0.0

    @property
    def megabytes(self) -> float:
        """Its own, and its part of what it shares, with that of its children."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sum(_proportional(int(one)) for one in [pid, *children])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def _proportional(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Bench:
    """One system on one fresh database, for one measurement."""

    def __init__(self, server: Postgres, contender: Contender, scale: float) -> None:
        self.server = server
        self.contender = contender
        self.scale = scale
        self.folder = Path(tempfile.mkdtemp(prefix="bench-marks-"))
        self.marks = Marks(self.folder)
        self.database = Database(server, f"bench_{contender.name}")
        self.agents: list[Agent] = []
        self.port = server.port
        self.finished = 0
        """Jobs that were added as history."""

    @property
    def name(self) -> str:
        return self.contender.name

    @property
    def url(self) -> str:
        return self.database.url.replace(f":{self.server.port}/", f":{self.port}/")

    def size(self, wanted: int) -> int:
        """How many jobs this system gets of a workload of so many."""
        return max(50, int(wanted * self.scale * self.contender.share))

    def start(self, command: str, at: str | None = None, **options: Any) -> Agent:
        """An agent that is ready and waits for go(); `at` another database than ours."""
        agent = Agent(self.contender, command, at or self.url, self.folder, options)
        self.agents.append(agent)
        return agent

    def do(self, command: str, at: str | None = None, **options: Any) -> Answer:
        agent = self.start(command, at, **options)
        agent.go()
        return agent.answer()

    def unfinished(self) -> int:
        return self.database.number(UNFINISHED[self.name])

    def add_history(self, count: int) -> None:
        """So many jobs finished long ago."""
        first, self.finished = self.finished + 1, self.finished + count
        self.database.run(
            FINISHED[self.name].replace("$first", str(first)).replace("$last", str(self.finished))
        )

    def wait(self, done: Callable[[], bool], seconds: float, pause: float = 0.002) -> bool:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            time.sleep(pause)
        return True

    def close(self) -> None:
        for agent in self.agents:
            agent.kill()
        self.database.drop()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def bench(server: Postgres, contender: Contender, scale: float, install: bool = True) -> Iterator[Bench]:
    found = Bench(server, contender, scale)
    try:
        if install:
            found.do("install")
        yield found
    finally:
        found.close()
