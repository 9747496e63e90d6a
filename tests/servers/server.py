"""What every launcher does: run a server on one port, as our own child, in its own folder, and restart it."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.servers.admin import Admin
from tests.servers.errors import Unavailable

CHILD = Path(__file__).with_name("child.py")
START_ATTEMPTS = 3
START_POLLS = 1500
POLL_SECONDS = 0.02
STOP_SECONDS = 20


class Server(ABC):
    """A server that belongs to the caller, from `start()` to the end of the `with` block."""

    kind: ClassVar[str]
    graceful: ClassVar[signal.Signals] = signal.SIGINT
    abrupt: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        if not self.data.exists():
            make_folder(self.folder)
            self._create_data()
            self._start_on_a_free_port()
        else:
            self._start_once()

    def stop(self, immediate: bool = False) -> None:
        """End the server; `immediate` as a crash would, without a word to its clients."""
        if self._process is None:
            return
        self._process.send_signal(self.abrupt if immediate else self.graceful)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self, immediate: bool = True) -> None:
        self.stop(immediate)
        self.start()

    def url(self, database: str) -> str:
        return self.admin.url(database)

    def create_database(self, name: str) -> str:
        self.admin.create_database(name)
        return self.url(name)

    def kill_connections(self) -> int:
        """Cut every client off; how many there were."""
        return self.admin.kill_connections()

    @property
    def process_id(self) -> int:
        """The server's first process, the parent of the others."""
        assert self._process is not None
        return self._process.pid

    @property
    @abstractmethod
    def admin(self) -> Admin: ...

    @abstractmethod
    def _create_data(self) -> None:
        """Fill `self.data` with an empty cluster."""

    @abstractmethod
    def _command(self) -> Sequence[str | Path]: ...

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _start_on_a_free_port(self) -> None:
        # Between finding a free port and using it, another process may take it.
        for _ in range(START_ATTEMPTS - 1):
            try:
                return self._start_once()
            except Unavailable:
                self.port = free_port()
        return self._start_once()

    def _start_once(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                as_child(self._command(), self.abrupt),
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until_ready(self._process)

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        for _ in range(START_POLLS):
            if self.admin.answers():
                return
            try:
                process.wait(POLL_SECONDS)
            except subprocess.TimeoutExpired:
                continue
            break
        self.stop(immediate=True)
        raise Unavailable(f"{self.kind} did not start: {self._last_words()}")

    def _run(self, command: Sequence[str | Path], script: bytes = b"") -> None:
        """Run one of the server's own programs to its end."""
        done = subprocess.run(
            as_child(command, signal.SIGKILL), env=self._environment(), input=script, capture_output=True
        )
        if done.returncode != 0:
            output = (done.stdout + done.stderr).decode(errors="replace")
            raise Unavailable(f"{Path(command[0]).name} failed: {output[-2000:]}")

    def _last_words(self) -> str:
        return (self.folder / "server.log").read_text(errors="replace")[-2000:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def as_child(
    command: Sequence[str | Path], death_signal: signal.Signals, who: str | None = None
) -> list[str]:
    """The command with `child.py` before it."""
    us = [sys.executable, "-I", "-S", str(CHILD), str(os.getpid()), str(int(death_signal))]
    return [*us, who or identity(), *map(str, command)]


@cache
def identity() -> str:
    """As whom servers run: as ourselves, unless we are root."""
    if os.geteuid() != 0:
        return "same"
    probe = as_child([sys.executable, "--version"], signal.SIGKILL, who="namespace")
    worked = subprocess.run(probe, capture_output=True).returncode == 0
    return "namespace" if worked else "nobody"


def make_folder(folder: Path) -> None:
    """A folder for the user that the server runs as."""
    folder.mkdir()
    if identity() == "nobody":
        os.chown(folder, pwd.getpwnam("nobody").pw_uid, -1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
