"""runtime/executors/process_child: a handler process does not outlive the worker whose claim it works under."""

import os
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL

import pytest

from penstock import Penstock
from tests.waiting import eventually
from tests.workers import WorkerProcess

pytestmark = pytest.mark.process

MODULE = """
import os, pathlib, time
from penstock import Penstock

app = Penstock()

@app.task(name="linger", executor="process", max_crashes=0)
def linger(file):
    pathlib.Path(file).write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)
"""


def test_a_handler_process_ends_with_its_worker(
    sqlite_url: str,
    app_on: Callable[[str], Penstock],
    workers_on: Callable[[str], Callable[..., WorkerProcess]],
    tmp_path: Path,
) -> None:
    app = app_on(sqlite_url)

    @app.task(name="linger")
    def linger(file: str) -> None: ...

    pid_file = tmp_path / "pid"
    linger.enqueue(str(pid_file))
    worker = workers_on(sqlite_url)("--processes", "0", module=MODULE)
    pid = int(eventually(lambda: pid_file.exists() and pid_file.read_text()))
    worker.send(SIGKILL)
    worker.wait()
    eventually(lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return (
        "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[:1]
        if Path("/proc").exists()
        else True
    )
