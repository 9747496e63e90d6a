"""Host identity: the facts with which processes on the same machine can ask the operating system if this one is dead.

Decision 019. A pid means something only to processes that share a kernel, a namespace and a machine, and only together
with the time at which its process was started. A process whose identity cannot be read publishes none, and no other
process judges it by its pid.
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

from penstock.values.parse import NAME_LENGTH

SHARED_MEMORY: Path | None = Path("/dev/shm")
"""A directory in the memory of the machine. None: processes publish no host identity."""
PROC = Path("/proc")
KEY = "dwelling"
"""The key in the details of a process row."""
LONGEST_WORD = 64
NAMES = 100
"""How many file names are tried, if another user has taken the first ones."""
ANNOUNCEMENT_FILES = 256
"""The most announcement files, chosen by hash: enough that few processes are woken needlessly, few enough to leave
behind."""


@dataclass(frozen=True, slots=True)
class HostIdentity:
    """A pid namespace of one boot of one machine, and the start time of this process in ticks of that kernel."""

    host: str
    place: str
    since: int

    def details(self) -> dict[str, object]:
        """The entry for the details of a process row, which has host and pid already."""
        return {KEY: {"place": self.place, "since": self.since}}

    def since_there(self, details: object) -> int | None:
        """The start time of another process with the same host identity, by its row; None: it runs elsewhere."""
        told = details.get(KEY) if isinstance(details, Mapping) else None
        if not isinstance(told, Mapping) or told.get("place") != self.place:
            return None
        since = told.get("since")
        return since if isinstance(since, int) else None


def host_name() -> str:
    """The name of this host, as process rows have it."""
    return socket.gethostname()[:NAME_LENGTH]


def this_host() -> HostIdentity | None:
    """The host identity of this process, read anew after every fork. None: it cannot be read for sure."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        if SHARED_MEMORY is None or os.readlink(PROC / "self") != str(os.getpid()):
            return None  # the /proc of others: pids mean something else there
        # Start times are told as the clock of a time namespace shows them; old kernels have none.
        spaces = [os.readlink(PROC / "self/ns" / kind) for kind in ("pid", "time") if _has(kind)]
        place = " ".join([boot, *spaces, _word(_word_file())])
        return HostIdentity(host_name(), place, ProcStat.of(os.getpid()).since)
    except (OSError, ValueError, IndexError):
        return None


def announce(at: str) -> None:
    """Tell the other processes on this host that use the same database that a new process has started."""
    with suppress(OSError, ValueError):
        handle = os.open(
            _announcement_file(at),
            os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            0o600,
        )
        try:
            now = time.time_ns()
            os.utime(handle, ns=(now, now))
        finally:
            os.close(handle)


def last_announcement(at: str) -> int:
    """When a process last announced itself: another number every time; never 0."""
    with suppress(OSError, ValueError):
        return os.stat(_announcement_file(at), follow_symlinks=False).st_mtime_ns
    return -1


def is_dead(pid: int, since: int) -> bool:
    """True if the operating system says that the process which started then is dead. A hidden process may be alive."""
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # the process exists, and belongs to another user
    try:
        life = ProcStat.of(pid)
    except (OSError, ValueError, IndexError):
        return False  # gone this very moment, or hidden: asked again soon
    return life.since != since or life.is_over


@dataclass(frozen=True, slots=True)
class ProcStat:
    """The fields of `/proc/<pid>/stat` that say whether a process lives."""

    state: str
    threads: int
    since: int

    @classmethod
    def of(cls, pid: int) -> ProcStat:
        with open(f"{PROC}/{pid}/stat", "rb", buffering=0) as file:
            return cls.read(file.read())

    @classmethod
    def read(cls, line: bytes) -> ProcStat:
        """The name of a program stands in parentheses, and may have some of its own, and spaces."""
        fields = line.rpartition(b")")[2].split()
        return cls(fields[0].decode(), int(fields[17]), int(fields[19]))

    @property
    def is_over(self) -> bool:
        """True if the process is dead, also if its parent has not waited for it yet (a zombie without live threads)."""
        return self.state in "ZX" and self.threads <= 1


def _word_file() -> Path:
    """A file of the user's. Every user may write there: a name that another user has taken is left to that user."""
    first = (SHARED_MEMORY or Path(os.devnull)) / f"penstock-{os.geteuid()}"
    names = [first, *[first.with_name(f"{first.name}.{number}") for number in range(1, NAMES)]]
    free: Path | None = None
    for name in names:
        try:
            if os.lstat(name).st_uid == os.geteuid():
                return name
        except FileNotFoundError:
            free = free or name
            if name == first:
                continue
            break
        except OSError:
            break
    return free or first


def _announcement_file(at: str) -> Path:
    """The announcement file for processes of the same database; a few other databases may share it."""
    return shared_file(str(crc32(at.encode()) % ANNOUNCEMENT_FILES))


def shared_file(name: str) -> Path:
    """The path of a file that all processes of this user on this host share.

    It holds a secret of this user on this host: no other user can create the file first.
    """
    word_file = _word_file()
    return word_file.with_name(f"{word_file.name}-{_word(word_file)[:12]}-{name}")


def _has(kind: str) -> bool:
    return os.path.lexists(PROC / "self/ns" / kind)


def _word(path: Path) -> str:
    """A random word for this boot of this machine, written by the first of this user's processes that asks.

    A virtual machine that was copied as it ran has boot id and namespaces in common with its copies, not this.
    """
    with suppress(FileNotFoundError):
        return _read(path)
    draft = path.with_name(f"{path.name}-{uuid4().hex}")
    with open(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "w") as file:
        file.write(uuid4().hex)
    try:
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()
    return _read(path)


def _read(path: Path) -> str:
    """Read the file if it belongs to this user: every user may create files in that directory."""
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
