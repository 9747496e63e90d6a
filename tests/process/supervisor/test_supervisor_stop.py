"""runtime/supervisor/supervisor, runtime/os_signals: Stopping: in order, at once, alone and under a supervisor. No
budget is spent by any of them.
"""

import os
import signal

import pytest

from penstock.job import Job
from penstock.runtime import os_signals
from tests.process.conftest import Shop, alive
from tests.waiting import eventually, pass_time

pytestmark = pytest.mark.process

PATIENT = {"PENSTOCK_TEST_SHUTDOWN": "60"}


@pytest.mark.parametrize("children", [0, 1])
def test_a_stop_finishes_what_it_can_and_gives_back_the_rest(shop: Shop, children: int) -> None:
    finishing = [shop.hold() for _ in range(4)]
    endless = [shop.enqueue("hold", "/nowhere/gate") for _ in range(4)]
    waiting = [shop.enqueue("hold", "/nowhere/gate") for _ in range(6)]
    worker = shop.start("--concurrency", "8", children=children)
    running = finishing + endless
    shop.begun(*running)
    worker.send(signal.SIGTERM)
    shop.open_gate()
    assert worker.wait(30) == 0
    assert [shop.outcomes(job) for job in finishing] == [["succeeded"]] * 4
    assert [shop.outcomes(job) for job in endless] == [["released"]] * 4
    assert all(job.status == "available" for job in endless + waiting)
    assert all(set(shop.outcomes(job)) <= {"released"} for job in waiting)
    assert [shop.spent(job) for job in running + waiting] == [(0, 0)] * 14
    assert shop.processes() == []
    assert _claims(shop) == 0


@pytest.mark.one_database
@pytest.mark.parametrize("children", [0, 1])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("task", ["hold", "hold_in_process"])
def test_a_signal_to_the_whole_group_is_still_a_stop_in_order(
    shop: Shop, children: int, number: signal.Signals, task: str
) -> None:
    """Service managers signal all processes of a service at once, and so does a terminal that is closed."""
    worker = shop.start(children=children, env=PATIENT)
    job = shop.hold(task)
    shop.begun(job)
    worker.send_all(number)
    worker.send_all(signal.SIGCONT)
    eventually(lambda: "stopping when running work is done" in worker.log)
    shop.open_gate()
    assert worker.wait(30) == 0
    assert shop.outcomes(job) == ["succeeded"]


@pytest.mark.one_database
@pytest.mark.parametrize("children", [0, 1])
@pytest.mark.parametrize("task", ["hold", "hold_in_thread", "hold_in_process", "block"])
def test_a_second_signal_stops_at_once_and_gives_the_work_back(shop: Shop, children: int, task: str) -> None:
    worker = shop.start(children=children, env=PATIENT)
    job = shop.hold(task)
    shop.begun(job)
    worker.send(signal.SIGTERM)
    eventually(lambda: "stopping when running work is done" in worker.log)
    pass_time(os_signals.ECHO)
    worker.send(signal.SIGTERM)
    assert worker.wait(30) == 128 + signal.SIGTERM
    _is_given_back(shop, job)


@pytest.mark.one_database
@pytest.mark.parametrize("children", [0, 1])
def test_a_signal_that_is_passed_on_is_not_a_second_one(shop: Shop, children: int) -> None:
    """`timeout` and many wrappers signal the process and then its group; Ctrl-C reaches both them and us."""
    worker = shop.start(children=children, env=PATIENT)
    job = shop.hold("hold")
    shop.begun(job)
    worker.send(signal.SIGTERM)
    worker.send(signal.SIGINT)
    eventually(lambda: "stopping when running work is done" in worker.log)
    shop.open_gate()
    assert worker.wait(30) == 0
    assert "at once" not in worker.log
    assert shop.outcomes(job) == ["succeeded"]


@pytest.mark.one_database
def test_a_child_that_will_not_stop_is_killed_in_the_end_and_its_work_given_back(shop: Shop) -> None:
    worker = shop.start(children=1, env={"PENSTOCK_TEST_OVERTIME": "1"})
    job = shop.hold("hold")
    child = shop.holder_of(job)
    os.kill(child.pid, signal.SIGSTOP)
    worker.send(signal.SIGTERM)
    assert worker.wait(30) == 0
    assert not alive(child.pid)
    assert "killed child" in worker.log
    assert job.status == "available"
    assert shop.processes() == []


@pytest.mark.one_database
@pytest.mark.parametrize("children", [0, 1])
def test_sigusr1_shows_all_stacks(shop: Shop, children: int) -> None:
    worker = shop.start(children=children)
    jobs = [shop.hold(task) for task in ("hold", "hold_in_thread", "hold_in_process")]
    shop.begun(*jobs)
    worker.send(signal.SIGUSR1)
    pids = {worker.pid, *(row.pid for row in shop.workers())}
    eventually(lambda: all(f"process {pid} has " in worker.log for pid in pids))
    eventually(lambda: "in hold_in_process" in worker.log)
    assert "in hold_in_thread" in worker.log
    assert "in hold\n" in worker.log
    assert worker.log.count("most recent call first") >= len(pids)
    shop.open_gate()
    assert [job.result(timeout=30) for job in jobs] == ["done"] * 3


def _is_given_back(shop: Shop, job: Job) -> None:
    assert job.status == "available"
    assert shop.outcomes(job) == ["released"]
    assert shop.spent(job) == (0, 0)
    assert shop.processes() == []


def _claims(shop: Shop) -> int:
    row = shop.app.database.read(lambda tx: tx.row("SELECT COUNT(*) FROM {claims}"))
    assert row is not None
    return int(row[0])
