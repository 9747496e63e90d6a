"""runtime/executors/dispatcher: Killed in the middle of many short jobs: only few had run without their outcome
being on record.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Penstock
from tests.conformance.rows import rows
from tests.waiting import eventually
from tests.workers import WorkerProcess

pytestmark = pytest.mark.process

JOBS = 4_000
MODULE = """
    import os
    from signal import SIGKILL

    from penstock import Penstock

    app = Penstock(os.environ["PENSTOCK_DATABASE_URL"])
    ledger = open("ledger", "ab", buffering=0)
    last = int(os.environ["LAST"])
    noted = 0

    @app.task(name="note")
    async def note(number: int) -> None:
        global noted
        noted += 1
        ledger.write(b"%d\\n" % number)
        if noted == last:
            os.kill(os.getpid(), SIGKILL)
"""


@pytest.mark.parametrize("last", [1_000, 1_333, 3_000])
def test_a_killed_worker_repeats_few_short_jobs(
    app: Penstock, worker_process: Callable[..., WorkerProcess], tmp_path: Path, last: int
) -> None:
    @app.task(name="note")
    def note(number: int) -> None: ...

    note.enqueue_many([(number,) for number in range(JOBS)])
    worker = worker_process("--processes", "0", module=MODULE, env={"LAST": str(last)})
    eventually(lambda: not worker.running, 60)
    (ledger,) = tmp_path.rglob("ledger")
    executed = ledger.read_text().split()
    assert len(set(executed)) == len(executed) == last
    ((recorded,),) = rows(app, "SELECT COUNT(*) FROM {job_states} WHERE status = 'succeeded'")
    assert 1 <= last - recorded <= app.settings.unrecorded + 1, "those, and the one that was at work"
