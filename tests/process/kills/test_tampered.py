"""database/boundary, operate/diagnosis/damage: Rows that were tampered with under supervised workers: killed
children are recovered from, and all others go on.
"""

import json
import os
import signal
from contextlib import suppress

import pytest

from penstock.database.transaction import Transaction
from penstock.job import Job
from penstock.operate.diagnosis import damage
from penstock.values.ids import new_id
from tests.process.conftest import Shop
from tests.waiting import eventually

pytestmark = pytest.mark.process

EARLIEST, GREATEST = -(2**63), 2**63 - 1
CRASHES = "UPDATE {job_states} SET crash_count = 2147483647 WHERE job_id = :id"
ATTEMPTS = f"UPDATE {{job_states}} SET generation = {GREATEST} WHERE job_id = :id"


def ghosts(tx: Transaction) -> None:
    """All damage that has once stopped every worker, at the same time, for jobs and processes that do not exist."""
    lost = new_id()
    claims = [(5, "nope"), (6, "5"), (7, '["x"]'), (8, json.dumps([lost]))]
    rows = [
        {"token": token, "process_id": new_id(), "job_ids": ids, "claimed_at": 1} for token, ids in claims
    ]
    tx.insert("claims", rows)
    counts = {"generation": 1, "retry_count": 0, "crash_count": 0, "cancel_requested": False}
    held = {"job_id": lost, "status": "running", "token": 8, "process_id": new_id(), **counts}
    tx.insert("job_states", [held])
    place = {"job_id": new_id(), "queue": "default", "tier": 0, "task": "shop.quick"}
    tx.insert("scheduled", [{**place, "due_at": EARLIEST}])
    timer = {"id": new_id(), "kind": "zzz", "run_id": new_id(), "job_id": None, "data": "nope", "due_at": 1}
    tx.insert("timers", [timer])
    tx.run("DELETE FROM {leases}")
    tx.insert("leases", [{"name": "retention", "holder": new_id(), "expires_at": GREATEST}])


def test_a_killed_child_is_recovered_from_whatever_else_is_in_the_tables(shop: Shop) -> None:
    worker = shop.start(children=2)
    doomed = shop.hold()
    shop.begun(doomed)
    spoilt = shop.hold()
    shop.begun(spoilt)
    stuck = shop.enqueue("quick", 3, delay=0.5)
    shop.app.database.in_transaction(ghosts)
    change = shop.app.database.in_transaction
    change(lambda tx: tx.run(CRASHES, id=spoilt.id))
    change(lambda tx: tx.run(ATTEMPTS, id=stuck.id))
    attempt = {"job_id": doomed.id, "generation": 1, "started_at": 1, "finished_at": 1, "outcome": "zzz"}
    shop.app.database.in_transaction(lambda tx: tx.insert("executions", [attempt]))
    for job in (doomed, spoilt):
        _kill_the_holder_of(shop, job)
    innocents = [shop.enqueue("quick", number) for number in range(5)]
    innocents.append(shop.enqueue("quick", 5, delay=0.3))
    assert [job.result(timeout=60) for job in innocents] == [0, 1, 2, 3, 4, 5]
    shop.begun(doomed, attempt=2)
    shop.open_gate()
    assert doomed.result(timeout=60) == "done"
    eventually(lambda: "cannot be handled and is set aside" in worker.log)
    assert "the receipt of claim 5" in worker.log
    assert worker.log.count("the receipt of claim 5") <= 6, "named once by each process"
    subjects = {one.subject for one in damage.find(shop.app.database)}
    assert {"claim 5", "claim 6", "claim 7"} <= subjects
    assert all(mended for one, mended in damage.repair(shop.app.database) if one.subject.startswith("claim"))
    assert worker.stop() == 0


def _kill_the_holder_of(shop: Shop, job: Job) -> None:
    """If it is held by a process at all: one may have died with the other."""
    told = shop.story(job).job
    holder = next((one for one in shop.workers() if one.id == told.process_id), None)
    if holder is not None:
        with suppress(ProcessLookupError):
            os.kill(holder.pid, signal.SIGKILL)
