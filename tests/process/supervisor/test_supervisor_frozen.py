"""runtime/supervisor/supervisor: a child that freezes in the middle of a write: its supervisor kills it, whether the
database answers or not.
"""

import signal
import time
from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.runtime.supervisor.child_process import fork_child
from penstock.runtime.supervisor.supervisor import Supervisor
from penstock.runtime.worker import WorkerOptions
from penstock.telemetry.events import ChildKilled
from tests.process.conftest import alive
from tests.waiting import eventually
from tests.workers import Workers

pytestmark = pytest.mark.process

MODULE = """
import os
import signal
import threading

from penstock import Penstock, current

app = Penstock(heartbeat_interval=0.3, reap_after=3, housekeeping_interval=0.2, poll_interval=0.1)


@app.task(name="freeze", retries=0, max_crashes=0)
def freeze(path: str) -> None:
    with current().transaction() as connection:
        connection.exec_driver_sql("DELETE FROM penstock_progress")
        with open(path, "w") as file:
            file.write(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)
        threading.Event().wait()  # this thread may go on for a moment, while another one takes the signal


@app.task(name="innocent")
def innocent(number: int) -> int:
    return number
"""


def test_a_child_frozen_inside_a_write_is_killed_and_the_others_go_on(
    worker_process: Workers, app: Penstock
) -> None:
    """On SQLite it keeps the whole file: no process beats, and none can be judged by that."""
    worker = worker_process("--processes", "2", module=MODULE)
    mark = worker_process.folder / "frozen"

    @app.task(name="freeze", retries=0, max_crashes=0)
    def freeze(path: str) -> None: ...

    @app.task(name="innocent")
    def innocent(number: int) -> int: ...  # type: ignore[empty-body]

    assert innocent.enqueue(1).result(timeout=30) == 1
    job = freeze.enqueue(str(mark))
    pid = int(eventually(lambda: mark.exists() and mark.read_text()))
    eventually(lambda: not alive(pid), timeout=20)
    assert "killed child" in worker.log
    assert [each.result(timeout=30) for each in [innocent.enqueue(n) for n in range(3)]] == [0, 1, 2]
    eventually(lambda: job.status == "failed")
    assert [attempt.outcome for attempt in job.attempts()] == ["crashed"]
    assert worker.log.count("killed child") == 1, "once, and the other has moved all the time"
    assert worker.stop() == 0


def sleeps(_key: str, _say: Callable[[bytes], None]) -> int:
    time.sleep(60)
    return 0


@pytest.mark.one_database
def test_a_child_is_killed_once_if_it_is_silent_in_two_ways(app: Penstock) -> None:
    """The thread of the database and the one that hears pulses may find the same child at the same time."""
    supervisor = Supervisor(app, WorkerOptions(), 1)
    child = fork_child(sleeps, [])
    told: list[ChildKilled] = []
    app.events.on(ChildKilled, told.append)
    supervisor.places[0].child = child
    supervisor.child_reaper.silent = {child.child_key}
    child.heard -= 60
    supervisor._kill_silent()
    supervisor._kill_frozen()
    supervisor.child_reaper.silent = {child.child_key}
    supervisor._kill_silent()
    assert [each.pid for each in told] == [child.pid]
    eventually(child.has_ended)
    assert child.code == -signal.SIGKILL


AT_ITS_START = """
import os
import signal
from contextlib import ExitStack
from pathlib import Path

from penstock import Penstock
from penstock.telemetry import fault_points

app = Penstock(heartbeat_interval=0.3, reap_after=3, housekeeping_interval=0.2, poll_interval=0.1)
SUPERVISOR = os.getpid()
MARK = Path(os.environ["PENSTOCK_TEST_MARK"])


def freeze(point: str) -> None:
    if point == "register.commit" and os.getpid() != SUPERVISOR and not MARK.exists():
        MARK.write_text(str(os.getpid()))
        os.kill(os.getpid(), signal.SIGSTOP)


WATCHING = ExitStack()
WATCHING.enter_context(fault_points.watching(freeze))


@app.task(name="innocent")
def innocent(number: int) -> int:
    return number
"""


def test_a_child_frozen_while_it_starts_is_killed_too(
    worker_process: Workers, app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is inside the write by which it registers: on SQLite no other process can write until it is dead."""
    mark = worker_process.folder / "frozen"
    monkeypatch.setenv("PENSTOCK_TEST_MARK", str(mark))
    worker = worker_process("--processes", "2", module=AT_ITS_START)

    @app.task(name="innocent")
    def innocent(number: int) -> int: ...  # type: ignore[empty-body]

    pid = int(eventually(lambda: mark.exists() and mark.read_text()))
    eventually(lambda: not alive(pid), timeout=20)
    assert "killed child" in worker.log
    assert [each.result(timeout=30) for each in [innocent.enqueue(n) for n in range(3)]] == [0, 1, 2]
    assert worker.log.count("killed child") == 1, "once, and the other has moved all the time"
    assert worker.stop() == 0
