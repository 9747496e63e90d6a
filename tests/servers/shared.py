"""One server of each kind per test session, started when a test first asks, shared by all pytest workers.

The session is a folder. Its owner, the pytest process the user started, holds the lock on the file `owner`;
keepers hold `<kind>.alive`. Whatever dies, its locks go with it: keepers end with the owner, and the next
session clears up what is left.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from tests.memory import FOLDER, in_memory
from tests.servers.admin import Admin, MariadbAdmin, PostgresAdmin
from tests.servers.errors import Unavailable

CHECKOUT = Path(__file__).resolve().parents[2]
PREFIX = "penstock-tests-"
ADMINS: dict[str, type[Admin]] = {"postgres": PostgresAdmin, "mariadb": MariadbAdmin}
ENVIRONMENT = {"postgres": "TEST_POSTGRES_URL", "mariadb": "TEST_MARIADB_URL"}


@contextmanager
def owned_session() -> Iterator[Path]:
    """A session's folder; at the end its servers are gone, and the folder too."""
    _clear_dead_sessions()
    unnamed = Path(mkdtemp(dir=in_memory()))
    unnamed.chmod(0o711)  # a server may have to run as another user
    with (unnamed / "owner").open("w") as owner:
        fcntl.lockf(owner, fcntl.LOCK_EX)
        # Only now under a name that others look for: they take a session without a lock for a dead one.
        folder = unnamed.rename(unnamed.with_name(PREFIX + unnamed.name))
        yield folder
    _wait_for_keepers(folder)
    shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class SharedServers:
    """The session's servers, as one pytest process sees them."""

    session: Path
    _known: dict[str, dict[str, str]] = field(default_factory=dict)
    _admins: dict[str, Admin] = field(default_factory=dict)

    def admin(self, kind: str) -> Admin:
        """The server of that kind, started at the first request; `Unavailable` if it cannot be had."""
        if kind not in self._admins:
            self._admins[kind] = ADMINS[kind](self._url(kind), keep=True)
        return self._admins[kind]

    def close(self) -> None:
        for admin in self._admins.values():
            admin.close()

    def _url(self, kind: str) -> str:
        if url := os.environ.get(ENVIRONMENT[kind]):
            return url
        words = self._known.get(kind) or self._known.setdefault(kind, self._ask(kind))
        if "unavailable" in words:
            raise Unavailable(words["unavailable"])
        return words["url"]

    def missing(self) -> dict[str, str]:
        """The kinds that a test asked for in vain, and why."""
        words = {kind: self._read(kind) for kind in ADMINS}
        return {kind: said["unavailable"] for kind, said in words.items() if said and "unavailable" in said}

    @contextmanager
    def once(self, what: str) -> Iterator[bool]:
        """True for the first process of the session that gets here and through; the others wait for it."""
        done = self.session / f"{what}.done"
        with (self.session / f"{what}.lock").open("w") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            yield not done.exists()
            done.touch()

    def _ask(self, kind: str) -> dict[str, str]:
        with self.once(kind) as first:
            if first:
                self._answer_file(kind).write_text(self._start_keeper(kind))
        words = self._read(kind)
        assert words is not None
        return words

    def _start_keeper(self, kind: str) -> str:
        with (self.session / f"{kind}.keeper.log").open("w") as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.servers.keeper", kind, str(self.session)],
                cwd=CHECKOUT,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for pytest
            )
        assert keeper.stdout is not None
        with keeper.stdout as answer:
            line = answer.readline()
        return line or json.dumps({"unavailable": Path(log.name).read_text()[-2000:]})

    def _read(self, kind: str) -> dict[str, str] | None:
        file = self._answer_file(kind)
        if not file.exists():
            return None
        words: dict[str, str] = json.loads(file.read_text())
        return words

    def _answer_file(self, kind: str) -> Path:
        return self.session / f"{kind}.json"


def _wait_for_keepers(folder: Path) -> None:
    for file in folder.glob("*.alive"):
        with file.open() as alive:
            fcntl.lockf(alive, fcntl.LOCK_SH)


def _clear_dead_sessions() -> None:
    for folder in [folder for root in (gettempdir(), FOLDER) for folder in Path(root).glob(f"{PREFIX}*")]:
        with suppress(OSError), (folder / "owner").open() as owner:
            fcntl.lockf(owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
            _wait_for_keepers(folder)
            shutil.rmtree(folder, ignore_errors=True)
