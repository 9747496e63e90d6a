"""queue/wakeup_targets: a worker that was woken for a job and dies before it claims: another one picks the job up.

The actors: a caller that enqueues, and two idle workers. The wake-up names few workers. The one that comes first to
its claim is killed before its first statement, so nothing is written that a reaper could find: the job is just ready.
"""

from pathlib import Path
from signal import SIGKILL

import pytest

from penstock import Penstock
from tests.waiting import eventually
from tests.workers import Workers

pytestmark = [pytest.mark.process, pytest.mark.one_database]

MODULE = """
import os
import signal
from contextlib import ExitStack
from pathlib import Path

from penstock import Penstock
from penstock.telemetry import fault_points

app = Penstock()
ORDER = Path(os.environ["PENSTOCK_TEST_ORDER"])


def die_once(point: str) -> None:
    if point == "claim.1" and ORDER.exists():
        try:
            ORDER.rename(ORDER.with_name(f"died-{os.getpid()}"))
        except FileNotFoundError:
            return  # the other worker was first
        os.kill(os.getpid(), signal.SIGKILL)


WATCHING = ExitStack()
WATCHING.enter_context(fault_points.watching(die_once))


@app.task(name="who", retries=0, max_crashes=0)
def who() -> int:
    return os.getpid()
"""


def test_another_worker_takes_the_job(
    worker_process: Workers, app: Penstock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order = tmp_path / "order"
    monkeypatch.setenv("PENSTOCK_TEST_ORDER", str(order))
    workers = [worker_process("--processes", "0", module=MODULE) for _ in range(2)]

    @app.task(name="who", retries=0, max_crashes=0)
    def who() -> int: ...  # type: ignore[empty-body]

    count = "SELECT count(*) FROM {processes}"
    eventually(lambda: app.database.read(lambda tx: tx.rows(count))[0][0] == 2)
    assert who.enqueue().result(timeout=30) in {worker.pid for worker in workers}
    order.write_text("die")
    job = who.enqueue()
    survivor = job.result(timeout=30)
    (mark,) = tmp_path.glob("died-*")
    dead = int(mark.name.removeprefix("died-"))
    assert {dead, survivor} == {worker.pid for worker in workers}
    (attempt,) = job.attempts()
    assert attempt.outcome == "succeeded"
    killed = next(worker for worker in workers if worker.pid == dead)
    assert killed.wait() == -SIGKILL
