"""Where a process lives: what others on the same machine need, to be told by the operating system that it is dead.

Decision 019. A pid means something only to those who share a kernel, a namespace and a machine, and only together with
the time at which its process was started. What cannot be read is not said, and nobody is judged by it.
"""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4
from zlib import crc32

from penstock.values.lengths import NAME_LENGTH

HEARTH: Path | None = Path("/dev/shm")
"""In the memory of the machine. None: nobody here says where it lives."""
PROC = Path("/proc")
KEY = "dwelling"
"""Where a process row says it."""
LONGEST_WORD = 64
DOORS = 256
"""Whoever has nothing to do with the others need not be disturbed; but files that nobody removes must stay few."""


@dataclass(frozen=True, slots=True)
class Dwelling:
    """A place in which a pid names one process at a time, and since when ours is there, in ticks of that kernel."""

    host: str
    place: str
    since: int

    def told(self) -> dict[str, object]:
        """For the details of a process row, which has host and pid already."""
        return {KEY: {"place": self.place, "since": self.since}}

    def since_there(self, details: object) -> int | None:
        """Since when another process lives at the same place, by the details of its row; None: elsewhere."""
        told = details.get(KEY) if isinstance(details, Mapping) else None
        if not isinstance(told, Mapping) or told.get("place") != self.place:
            return None
        since = told.get("since")
        return since if isinstance(since, int) else None


def host_name() -> str:
    """As process rows have it."""
    return socket.gethostname()[:NAME_LENGTH]


def here() -> Dwelling | None:
    """Where this very process lives: asked anew after every fork. None: that cannot be said for sure."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        if HEARTH is None or os.readlink(PROC / "self") != str(os.getpid()):
            return None  # the /proc of others: pids mean something else there
        # Start times are told as the clock of a time namespace shows them; old kernels have none.
        spaces = [os.readlink(PROC / "self/ns" / kind) for kind in ("pid", "time") if _has(kind)]
        place = " ".join([boot, *spaces, _word(_hearth())])
        return Dwelling(host_name(), place, Life.of(os.getpid()).since)
    except (OSError, ValueError, IndexError):
        return None


def knock(at: str) -> None:
    """Let all who live here, and work for the same, know that somebody has moved in."""
    with suppress(OSError):
        handle = os.open(
            _door(at), os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600
        )
        try:
            now = time.time_ns()
            os.utime(handle, ns=(now, now))
        finally:
            os.close(handle)


def last_knock(at: str) -> int:
    """When somebody did: another number every time; never 0."""
    with suppress(OSError):
        return os.stat(_door(at), follow_symlinks=False).st_mtime_ns
    return -1


def is_dead(pid: int, since: int) -> bool:
    """Whether the operating system says that the process which began then is no more. What it hides may live."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # there is one, of somebody else
    try:
        life = Life.of(pid)
    except (OSError, ValueError, IndexError):
        return False  # gone this very moment, or hidden: asked again soon
    return life.since != since or life.is_over


@dataclass(frozen=True, slots=True)
class Life:
    """What /proc says about a process."""

    state: str
    threads: int
    since: int

    @classmethod
    def of(cls, pid: int) -> Life:
        with open(f"{PROC}/{pid}/stat", "rb", buffering=0) as file:
            return cls.read(file.read())

    @classmethod
    def read(cls, line: bytes) -> Life:
        """The name of a program stands in parentheses, and may have some of its own, and spaces."""
        fields = line.rpartition(b")")[2].split()
        return cls(fields[0].decode(), int(fields[17]), int(fields[19]))

    @property
    def is_over(self) -> bool:
        """Dead, and nobody has asked for its exit code yet; as long as one of its threads lives, it is not."""
        return self.state in "ZX" and self.threads <= 1


def _hearth() -> Path:
    return (HEARTH or Path(os.devnull)) / f"penstock-{os.geteuid()}"


def _door(at: str) -> Path:
    """A file of the user's for those who work for the same database, or for one of the few that share it."""
    return _hearth().with_name(f"{_hearth().name}-{crc32(at.encode()) % DOORS}")


def _has(kind: str) -> bool:
    return os.path.lexists(PROC / "self/ns" / kind)


def _word(path: Path) -> str:
    """A word that was drawn on this machine, since it has booted, by the first of this user's processes to ask.

    A virtual machine that was copied as it ran has boot id and namespaces in common with its copies, not this.
    """
    with suppress(FileNotFoundError):
        return _read(path)
    draft = path.with_name(f"{path.name}-{uuid4().hex}")
    with open(draft, "x") as file:
        file.write(uuid4().hex)
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    return _read(path)


def _read(path: Path) -> str:
    """Everybody may write there: what another has put in the way is not ours."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise PermissionError(f"{path} is not ours")
        word = os.read(handle, LONGEST_WORD).decode().strip()
    finally:
        os.close(handle)
    if not word:
        raise ValueError(f"{path} is empty")
    return word
