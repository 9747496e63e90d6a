"""queue/reclaim: Hosts whose clocks are an hour off, one each way. Invariant 8: only the database's clock counts."""

import os

import pytest

from tests.process.history import check, rows, settled
from tests.process.programs import MODULE, lines_with, start_worker
from tests.process.scenes import make_app
from tests.waiting import eventually
from tests.workers import WorkerProcess, Workers

pytestmark = pytest.mark.process

SKEW = """
import os
import time

skew = float(os.environ.get("PENSTOCK_TEST_SKEW", "0"))
now, now_ns = time.time, time.time_ns
time.time = lambda: now() + skew
time.time_ns = lambda: now_ns() + int(skew * 1_000_000_000)
"""
PRODUCE = """
from shop import app

for number in range(20):
    app.tasks["double"].enqueue(number)
app.tasks["who"].options(delay=0.7).enqueue()
"""
DELAY = 700_000
SHIFTS = {"fast": "3600", "slow": "-3600"}
TIMES = """
SELECT s.claimed_at, j.created_at FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id WHERE j.task = 'who'
"""


@pytest.fixture
def hosts(worker_process: Workers) -> Workers:
    worker_process.write_module(SKEW, "sitecustomize")
    worker_process.write_module(MODULE)
    return worker_process


def produce(hosts: Workers, shift: str) -> None:
    env = {"PENSTOCK_TEST_SKEW": SHIFTS[shift], "PENSTOCK_TEST_DIARY": os.devnull}
    assert hosts.python("-c", PRODUCE, env=env).wait() == 0


def work(hosts: Workers, shift: str, *options: str) -> WorkerProcess:
    return start_worker(hosts, "--processes", "0", *options, env={"PENSTOCK_TEST_SKEW": SHIFTS[shift]})


def ran(hosts: Workers) -> list[str]:
    """The jobs in the order in which they ran, as they wrote it down themselves."""
    return [line.split()[0] for line in (hosts.folder / "diary").read_text().splitlines()]


HEARTBEATS = "SELECT id, heartbeat_at FROM {processes}"


def test_clocks_an_hour_off_change_nothing(hosts: Workers, database_url: str) -> None:
    app = make_app(database_url)
    produce(hosts, "fast")
    produce(hosts, "slow")
    queued = [str(id) for (id,) in rows(app, "SELECT job_id FROM {availabilities} ORDER BY seq")]
    assert queued != sorted(queued), "ids carry the clocks of their makers"

    first = work(hosts, "slow", "--concurrency", "1")
    settled(app)
    assert [id for id in ran(hosts) if id in queued] == queued, "order is the database's"
    for claimed_at, created_at in rows(app, TIMES):
        assert DELAY <= claimed_at - created_at < DELAY + 600_000_000, "delays are the database's"

    workers = [first, work(hosts, "fast")]
    both = eventually(lambda: dict(rows(app, HEARTBEATS)) if len(rows(app, HEARTBEATS)) == 2 else None)
    assert both is not None
    later = 1_500_000
    eventually(lambda: all(dict(rows(app, HEARTBEATS))[id] > at + later for id, at in both.items()))
    for worker in workers:
        assert worker.stop() == 0
        assert not lines_with(worker, "dead"), "leases are the database's"
    jobs = check(app)
    assert {(job["status"], job["crash_count"]) for job in jobs.values()} == {("succeeded", 0)}
