"""The ledger: what really happened, written outside the database under test.

One file per process, one line per entry, on disk before the caller goes on. A line is written in one piece: a process
that is killed has written it or not. Times are those of the machine's monotonic clock, which all processes share and no
skewed host clock moves.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


class Ledger:
    """Where this process writes; after a fork, the child opens a file of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self._file = -1
        self._pid = -1

    def write(self, what: str, **more: Any) -> None:
        line = json.dumps({"what": what, "pid": os.getpid(), "at": time.monotonic(), **more})
        os.write(self._handle(), f"{line}\n".encode())
        os.fsync(self._file)

    def _handle(self) -> int:
        if self._pid != os.getpid():
            self.folder.mkdir(parents=True, exist_ok=True)
            file = self.folder / f"{self.name}-{os.getpid()}.jsonl"
            self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            self._pid = os.getpid()
        return self._file


def read(folder: Path) -> list[Entry]:
    """All entries of all processes, in the order of time."""
    entries = [entry for file in sorted(folder.glob("*.jsonl")) for entry in _entries(file)]
    return sorted(entries, key=lambda entry: entry["at"])


def _entries(file: Path) -> Iterator[Entry]:
    for line in file.read_text().splitlines():
        yield json.loads(line)
