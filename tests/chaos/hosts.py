"""A host: `penstock worker` with its supervisor and children, its own way to the database, its own clock."""

import struct
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGCONT, SIGKILL, Signals

from tests.chaos import terms
from tests.chaos.cables import Cable
from tests.chaos.programs import Program, Programs
from tests.chaos.proxy import Proxy

SECONDS = struct.Struct("d")
UNREACHABLE = 3
"""The exit code of a worker that found no database when it started."""

# The clock of a host is the machine's, shifted by what stands in a file, from one moment to the next.
SKEWED = """
import mmap
import os
import struct
import time

if "PENSTOCK_TEST_CLOCK" in os.environ:
    with open(os.environ["PENSTOCK_TEST_CLOCK"], "rb") as file:
        shift = mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
    now, now_ns, read = time.time, time.time_ns, struct.Struct("d").unpack_from
    time.time = lambda: now() + read(shift)[0]
    time.time_ns = lambda: now_ns() + int(read(shift)[0] * 1_000_000_000)
"""


@dataclass(slots=True)
class Host:
    """A simulated machine. Its processes are one group; killed as one, they are a power cut."""

    name: str
    folder: Path
    programs: Programs
    environment: dict[str, str]
    proxy: Proxy | None = None
    cable: Cable | None = None
    worker: Program | None = None
    busy: bool = False
    """Something is being done to it."""
    former: list[Program] = field(default_factory=list)
    boots: int = 1

    @property
    def clock(self) -> Path:
        return self.folder / f"clock-{self.name}"

    @property
    def hearth(self) -> Path:
        """What its processes have in common, from one power cut to the next."""
        return self.folder / f"hearth-{self.name}-{self.boots}"

    def skew(self, seconds: float) -> None:
        """Let its clock be so far from the machine's, from now on."""
        with self.clock.open("r+b" if self.clock.exists() else "wb") as file:
            file.write(SECONDS.pack(seconds))

    def start(self) -> None:
        if not self.clock.exists():
            self.skew(0)
        if self.worker is not None:
            self.former.append(self.worker)
        self.hearth.mkdir(exist_ok=True)
        ours = {terms.HOST: self.name, terms.CLOCK: str(self.clock), terms.SHARED_MEMORY: str(self.hearth)}
        self.worker = self._started({**self.environment, **ours})

    def _started(self, environment: dict[str, str]) -> Program:
        options = ("--processes", str(terms.CHILDREN), "--concurrency", str(terms.CONCURRENCY))
        return self.programs.start(
            ["-m", "penstock", "worker", "tests.chaos.host:app", *options], environment, self.inside
        )

    @property
    def inside(self) -> list[str]:
        return [] if self.cable is None else self.cable.inside

    def block(self) -> None:
        """Nothing comes through between it and the database, and neither side gets an error."""
        assert self.proxy is not None
        if self.cable is not None:
            self.cable.pull()
        else:
            self.proxy.block()

    def unblock(self, *, reset: bool) -> None:
        """What was sent arrives; or all connections of the time before are gone."""
        assert self.proxy is not None
        self.proxy.unblock(reset=reset)
        if self.cable is not None:
            self.cable.plug()

    @property
    def running(self) -> bool:
        return self.worker is not None and self.worker.running

    def children(self) -> list[int]:
        return self.worker.children() if self.worker is not None and self.worker.running else []

    def pids(self) -> list[int]:
        return [self.worker.pid, *self.children()] if self.worker is not None else []

    def send(self, number: Signals) -> None:
        if self.worker is not None and self.worker.running:
            self.worker.send(number)

    def send_all(self, number: Signals) -> None:
        if self.worker is not None:
            self.worker.send_all(number)

    def kill(self) -> None:
        self.send_all(SIGKILL)

    def lose_power(self) -> None:
        self.kill()
        self.boots += 1

    def thaw(self) -> None:
        self.send_all(SIGCONT)

    def logs(self) -> list[str]:
        return [worker.log for worker in [*self.former, self.worker] if worker is not None]


class ProducerHost(Host):
    """The machine that the load comes from."""

    def _started(self, environment: dict[str, str]) -> Program:
        return self.programs.start(["-m", "tests.chaos.produce", str(terms.PACE)], environment, self.inside)
