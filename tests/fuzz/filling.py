"""Fills every table of an app with rows at every stage of their lives, for a hand to tamper with.

The ordinary way to a row is taken where there is one that lasts; a row that exists only in passing (a tally, a place of
an expand that is under way) is written by the module that owns its table.
"""

from __future__ import annotations

from sqlalchemy import insert

from penstock.database.transaction import Transaction
from penstock.queue import job_records, processes, stack_dumps, tallies
from penstock.values.ids import new_id
from tests.fuzz.innocents import Crowd, Thing

ELSEWHERE = "a host that is not this one"


def fill(crowd: Crowd) -> None:
    """Something at every stage of its life, in every table."""
    crowd.app.pause_queue("elsewhere")
    crowd.app.set_queues("mail:10", ELSEWHERE)
    _jobs(crowd)
    run = _runs(crowd)
    _rows(crowd)
    _schedules(crowd)
    crowd.app.database.in_transaction(_in_passing, run)


def _jobs(crowd: Crowd) -> None:
    add = crowd.add
    add.options(delay=0.3, labels=["some"]).enqueue(1, 2)
    add.options(delay=3600, key="keyed").enqueue(1, 2).then(add, 1, 1)
    add.options(delay=3600, key="order", unique="while_pending").enqueue(1, 2)
    add.options(queue="elsewhere").enqueue(1, 2)
    for _ in range(3):
        crowd.only_one.enqueue(0.2)
    crowd.fails.enqueue()
    crowd.noting.enqueue()
    crowd.held("lost")
    crowd.held("kept", alive=True).cancel()


def _runs(crowd: Crowd) -> str:
    """The id of a run that waits."""
    crowd.fan.trigger(3)
    crowd.fan.options(delay=0.3).trigger(3)
    crowd.waits.options(labels=["some"], key="waits").trigger().signal("go", 1)
    waiting = crowd.waits.trigger()
    waiting.context["cursor"] = 7
    waiting.then(crowd.fan, 2)
    crowd.waits.options(delay=3600).trigger().signal("go", 1)
    each = crowd.each_waits.trigger(2)
    each.signal("each", 1, path=[0])
    for _ in range(2):
        crowd.one_at_a_time.trigger()
    return waiting.id


def _rows(crowd: Crowd) -> None:
    with crowd.app.database.engine.begin() as connection:
        connection.execute(insert(Thing), [{"status": "new"}, {"status": "bad"}])


def _schedules(crowd: Crowd) -> None:
    for name, options in (
        ("often", {"every": 0.5}),
        ("nightly", {"cron": "0 3 * * *", "tz": "Europe/Berlin"}),
    ):
        schedule = crowd.app.schedules.create(crowd.add, name=name, args=(1, 2), overlap="queue", **options)
        schedule.trigger()


def _in_passing(tx: Transaction, run: str) -> None:
    process, job = new_id(), new_id()
    stack_dumps.ask(tx, process)
    processes.take_lease(tx, f"lease {process}", process, 60.0)
    tallies.sample(tx, [tallies.QueueSample("default", 1, 1)])
    job_records.record(tx, {job: (0.5, "half of it")})
    counts = {"reconciler": "things", "processed": 1, "failed": 0, "lost": 0, "rate": 0.1}
    tx.insert("reconciler_counts", [counts | {"process_id": process}], updated_at="{now}")
    failure = {"reconciler": "things", "row_key": job, "attempts": 1, "error_type": "ValueError"}
    tx.insert("row_failures", [failure | {"error": "no", "traceback": ""}], failed_at="{now}")
    sums = {"attempts": 1, "failed": 0, "run_micros": 1, "longest": 1}
    counted = {"task": "add", "queue": "default", "outcome": "succeeded", **sums}
    tx.insert("tallies", [counted], tallied_at="{now}")
    tx.insert("rollups", [counted | {"span": "hour", "begins_at": 0}], ignore_duplicates=True)
    place = {"id": new_id(), "run_id": run, "node": "add", "path": "", "width": 3, "phase": "steps"}
    later = {"next_index": 0, "problem": "put off, so that it lasts"}
    tx.insert("advancements", [place | later], created_at="{now}", updated_at="{now}")
