"""pipelines/advance: Real workers, killed again and again while runs are under way: every run ends, with every step
recorded once.
"""

from collections import Counter
from functools import partial
from random import Random

import pytest

from penstock import Penstock
from penstock.values.status import RunStatus
from tests.process.history import declare_dead
from tests.process.pipeline_scene import make_app
from tests.process.programs import LIVELY
from tests.waiting import eventually
from tests.workers import Workers

pytestmark = pytest.mark.process

MODULE = """
import os

from tests.process.pipeline_scene import make_app

app = make_app(os.environ["PENSTOCK_DATABASE_URL"])
"""
COUNTS = (0, 3, 8, 20)
RUNS = 24


def expected(count: int) -> int:
    numbers = sum(range(count))
    return 6 * numbers + 2 * numbers + 12 * numbers


def test_runs_end_though_workers_are_killed_at_random(worker_process: Workers, database_url: str) -> None:
    app = make_app(database_url)
    chance = Random(11)
    runs = [app.pipelines["parent"].trigger(COUNTS[n % len(COUNTS)]) for n in range(RUNS)]
    for _ in range(4):
        before = ended(app)
        one = worker_process("--processes", "0", "--concurrency", "5", module=MODULE, env=LIVELY)
        wanted = before + chance.randrange(5, 60)
        eventually(partial(has_come_to, app, wanted), 60)
        one.kill()
        declare_dead(app)
    worker_process("--processes", "0", module=MODULE, env=LIVELY)
    eventually(lambda: not unfinished(app), 90)
    assert Counter(run.status for run in runs) == {RunStatus.SUCCEEDED: RUNS}
    assert [run.result(0) for run in runs] == [expected(COUNTS[n % len(COUNTS)]) for n in range(RUNS)]
    recorded = app.database.read(
        lambda tx: tx.rows("SELECT job_id FROM {executions} WHERE outcome = 'succeeded'")
    )
    assert set(Counter(recorded).values()) == {1}
    app.close()


def has_come_to(app: Penstock, wanted: int) -> bool:
    return ended(app) >= wanted or not unfinished(app)


def ended(app: Penstock) -> int:
    row = app.database.read(
        lambda tx: tx.row("SELECT COUNT(*) FROM {job_states} WHERE finished_at IS NOT NULL")
    )
    return int(row[0]) if row else 0


def unfinished(app: Penstock) -> int:
    row = app.database.read(lambda tx: tx.row("SELECT COUNT(*) FROM {runs} WHERE ended_at IS NULL"))
    return int(row[0]) if row else 0
