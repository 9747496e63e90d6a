"""runtime/supervisor/supervisor: the supervisor with real processes and real signals: who is replaced, what is
redone, what is spent.
"""

import os
import signal
import time

import pytest

from tests.process.conftest import Shop, alive
from tests.waiting import eventually

pytestmark = pytest.mark.process


def test_a_killed_child_is_replaced_within_two_seconds_and_its_work_redone(shop: Shop) -> None:
    shop.start(children=2)
    took = [_killed_and_redone(shop)]
    while min(took) >= 2 and len(took) < 5:  # now and then a machine has too much else to do
        took.append(_killed_and_redone(shop))
    assert min(took) < 2, "its work waited for the heartbeat to be missed"


def _killed_and_redone(shop: Shop) -> float:
    """How long it takes until there are two children again and what the dead one did has begun again."""
    job = shop.hold()
    shop.begun(job)
    victim = shop.holder_of(job)
    os.kill(victim.pid, signal.SIGKILL)
    killed = time.monotonic()
    eventually(lambda: len([w for w in shop.workers() if w.id != victim.id]) == 2)
    shop.begun(job, attempt=2)
    took = time.monotonic() - killed
    shop.open_gate()
    assert job.result(timeout=30) == "done"
    shop.gate.unlink()
    assert shop.outcomes(job) == ["crashed", "succeeded"]
    assert shop.spent(job) == (0, 1)
    return took


def test_the_children_of_a_killed_supervisor_stop_and_give_their_work_back(shop: Shop) -> None:
    worker = shop.start(children=2)
    job = shop.hold()
    shop.begun(job)
    pids = [row.pid for row in shop.workers()]
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: not any(alive(pid) for pid in pids), timeout=30)
    assert worker.log.count("the supervisor is gone") == 2
    assert shop.outcomes(job) == ["released"]
    assert shop.spent(job) == (0, 0)
    shop.start(children=1)
    shop.open_gate()
    assert job.result(timeout=30) == "done"
    eventually(lambda: len(shop.processes()) == 2, timeout=30)  # the dead supervisor's row is reaped


@pytest.mark.one_database
def test_a_frozen_child_is_killed_and_replaced(shop: Shop) -> None:
    shop.start(children=1)
    job = shop.hold()
    shop.begun(job)
    victim = shop.holder_of(job)
    os.kill(victim.pid, signal.SIGSTOP)
    eventually(lambda: not alive(victim.pid), timeout=30)
    shop.open_gate()
    assert job.result(timeout=30) == "done"
    assert shop.outcomes(job) == ["crashed", "succeeded"]
    assert [worker.pid for worker in shop.workers()] != [victim.pid]


@pytest.mark.one_database
def test_a_child_stopped_by_hand_is_replaced_and_nothing_is_spent(shop: Shop) -> None:
    shop.start(children=1)
    job = shop.hold()
    shop.begun(job)
    victim = shop.holder_of(job)
    os.kill(victim.pid, signal.SIGTERM)
    eventually(lambda: shop.outcomes(job) == ["released"])
    assert shop.holder_of(job).pid != victim.pid
    assert shop.spent(job) == (0, 0)
    shop.open_gate()
    assert job.result(timeout=30) == "done"


def test_a_poison_task_is_stopped_by_its_budget_while_the_others_go_on(shop: Shop) -> None:
    poison = shop.enqueue("die")
    others = [shop.enqueue("quick", number) for number in range(50)]
    worker = shop.start_worker("--processes", "2")
    assert [other.result(timeout=30) for other in others] == list(range(50))
    eventually(lambda: poison.status == "failed")
    assert shop.outcomes(poison) == ["crashed"] * 3
    assert shop.story(poison).job.reason == "crashes_exhausted"
    assert worker.running
    assert [letter.id for letter in shop.app.dead_letters()] == [poison.id]


@pytest.mark.one_database
def test_children_that_die_at_their_start_again_and_again_are_held_back(shop: Shop) -> None:
    worker = shop.start_worker("--processes", "1", env={"PENSTOCK_CRASH_AT": "register.1:exit"})
    eventually(lambda: "children in a row ended right after the start" in worker.log)
    assert worker.running
    assert worker.log.count(" started\n") < 30
    assert worker.stop() == 0


def test_two_supervisors_share_a_database_and_inherit_from_each_other(shop: Shop) -> None:
    first = shop.start(children=1)
    job = shop.hold()
    shop.begun(job)
    shop.start(children=1)
    first.kill()
    eventually(lambda: shop.outcomes(job) == ["crashed"], timeout=30)
    shop.open_gate()
    assert job.result(timeout=30) == "done"
    eventually(lambda: len(shop.processes()) == 2, timeout=30)


@pytest.mark.one_database
def test_a_supervisor_that_others_took_for_dead_comes_back_and_knows_its_children(shop: Shop) -> None:
    worker = shop.start(children=1)
    os.kill(worker.pid, signal.SIGSTOP)
    eventually(lambda: [row.role for row in shop.processes()] == ["all"], timeout=30)
    os.kill(worker.pid, signal.SIGCONT)
    eventually(lambda: sorted(row.role for row in shop.processes()) == ["all", "supervisor"])
    victim = shop.workers()[0]
    os.kill(victim.pid, signal.SIGKILL)
    eventually(lambda: [row.pid for row in shop.workers()] not in ([victim.pid], []))
    assert worker.stop() == 0
    assert shop.processes() == []


@pytest.mark.one_database
@pytest.mark.slow
def test_those_who_ran_beside_a_poison_task_get_past_it(shop: Shop) -> None:
    """Its neighbours crash with it, under the same budget; they must not fail with it."""
    poison = shop.enqueue("die", max_crashes=4)
    others = [shop.enqueue("nap", number, max_crashes=4) for number in range(20)]
    shop.start_worker("--processes", "1")
    assert [other.result(timeout=90) for other in others] == list(range(20))
    eventually(lambda: poison.status == "failed", timeout=90)
