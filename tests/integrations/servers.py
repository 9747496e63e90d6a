"""Web servers as processes of a test, and requests to them."""

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL
from urllib.error import HTTPError

from tests.waiting import eventually
from tests.workers import WorkerProcess, Workers

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
ADDRESS = re.compile(r"(?:running on|Listening at:?|Running on) (http://[\d.]+:\d+)")


def served(
    workers: Workers, *arguments: str, home: Path, env: Mapping[str, str] | None = None
) -> tuple[WorkerProcess, str]:
    """Start a server in the folder of an example; the process, and its address."""
    path = os.pathsep.join([str(home), str(workers.folder), str(ROOT)])
    given = {"PYTHONPATH": path, "DATABASE_URL": workers.database_url, **(env or {})}
    server = workers.python(*arguments, env=given)

    def address() -> str:
        assert server.running, server.log
        found = ADDRESS.findall(server.log)
        return found[-1] if found else ""

    return server, eventually(address, timeout=60)


@contextmanager
def fresh_process(
    folder: Path, *arguments: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple["subprocess.Popen[bytes]", Callable[[], str]]]:
    """`python ARGUMENTS`, for programs that start processes by their own command line; the process, and its log."""
    file = folder / "fresh.log"
    with file.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process, lambda: file.read_text(errors="replace")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, SIGKILL)
        process.wait()
        print(file.read_text(errors="replace")[-10_000:])  # noqa: T201 - shown when the test fails


def asked(address: str, method: str = "GET", headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The status and the text of the answer."""
    request = urllib.request.Request(address, method=method, headers=dict(headers or {}))
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def told(address: str, method: str = "GET") -> dict[str, str]:
    """The JSON of a good answer."""
    status, text = asked(address, method)
    assert status < 300, text
    found: dict[str, str] = json.loads(text)
    return found
