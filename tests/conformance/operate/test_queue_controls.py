"""queue/rules/queue_controls: Queues that are paused and resumed, and workers that are given other queues, at run
time.
"""

import asyncio
import threading

import pytest
from sqlalchemy import insert

from penstock import Penstock
from penstock.errors import ConfigurationError
from penstock.operate.doctor import CheckContext, Level, waiting
from penstock.operate.processes import list_processes
from penstock.queue.rules import queue_controls
from penstock.runtime.liveness.host_identity import host_name
from penstock.runtime.worker import Worker
from penstock.telemetry.events import ControlIgnored
from penstock.testing import drain
from tests.commands import call
from tests.conformance.embedded import beside_a_worker
from tests.conformance.operate.helpers import enqueue, look
from tests.waiting import until


def test_nothing_is_claimed_from_a_paused_queue(app: Penstock) -> None:
    held, free = enqueue(app, "quick", 1, queue="mail"), enqueue(app, "quick", 2)
    assert app.pause_queue("mail", why="provider is down")
    assert not app.pause_queue("mail")
    assert drain(app) == 1
    assert (held.status, free.status) == ("available", "succeeded")
    seen = {row.queue: row for row in app.queues()}
    assert (seen["mail"].available, seen["mail"].pause_why) == (1, "provider is down")
    assert seen["mail"].paused_at is not None
    assert [row.pause_why for row in look(app).queues] == ["provider is down"]
    (found,) = [each for each in waiting(_patient(app)) if each.check == "queues"]
    assert (found.level, "provider is down" in found.message) == (Level.WARNING, True)
    assert app.resume_queue("mail")
    assert not app.resume_queue("mail")
    assert not app.resume_queue("never")
    assert drain(app) == 1
    assert [(act.act, act.kind, act.why, act.detail) for act in app.audit()] == [
        ("resume_queue", "queue", "", {"queue": "mail"}),
        ("pause_queue", "queue", "provider is down", {"queue": "mail"}),
    ]
    for wrong in ("", "a b", 7):
        with pytest.raises(ConfigurationError):
            app.pause_queue(wrong)  # type: ignore[arg-type]


def _patient(app: Penstock) -> CheckContext:
    return CheckContext(app.database, app.metadata, frozenset(app.tasks))


def test_a_paused_queue_with_nothing_in_it_is_listed(app: Penstock) -> None:
    app.pause_queue("empty")
    assert [row.queue for row in app.queues()] == ["empty"]


def test_pausing_a_queue_that_nothing_has_used_says_so(app: Penstock, database_url: str) -> None:
    """It may be meant: a queue can be paused before its first job."""
    job = enqueue(app, "quick", 1, queue="mail")
    drain(app)
    pause = ("queues", "pause", "--database", database_url)
    told = call(*pause, "mial")
    assert told.exit_code == 0
    assert "queue mial is paused; nothing has used it yet. Did you mean 'mail'?" in told.output
    assert [row.queue for row in app.queues()] == ["mial"]
    assert "nothing has used it yet" in call(*pause, "mial").output
    assert job.status == "succeeded"
    assert call(*pause, "mail").output == "queue mail is paused\n"


def test_every_change_changes_the_revision(app: Penstock) -> None:
    """Also if one control is lifted while another holds: a worker sees the sum only."""
    seen = []
    for change in (app.pause_queue, app.resume_queue):
        for queue in ("a", "b"):
            change(queue)
            seen.append(app.database.read(queue_controls.read).revision)
    assert len(set(seen)) == 4
    assert app.database.read(queue_controls.read).paused == frozenset()


def test_two_who_pause_at_once_pause_once(app: Penstock) -> None:
    app.prepare()
    barrier, answers = threading.Barrier(4), []

    def pause() -> None:
        barrier.wait()
        answers.append(app.pause_queue("mail"))

    threads = [threading.Thread(target=pause) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False, False, False, True]
    assert len(app.audit()) == 1


def test_running_workers_follow(app: Penstock) -> None:
    """One that was there before, on all queues: it stops and goes on; the next steps of runs as well."""

    async def main(worker: Worker) -> None:
        assert await enqueue(app, "quick", 0, queue="mail").result_async(60) == 0
        await app.pause_queue_async("mail")
        await until(lambda: "mail" in worker.source.lanes.paused)
        held = enqueue(app, "quick", 1, queue="mail")
        run = await second.trigger_async(2)
        assert await enqueue(app, "quick", 3).result_async(60) == 3
        await until(lambda: len(run.steps()) == 2)
        assert await enqueue(app, "quick", 4).result_async(60) == 4
        assert (held.status, run.steps()[1].status) == ("available", "available")
        await app.resume_queue_async("mail")
        assert (await held.result_async(60), await run.result_async(60)) == (1, 2)

    quick = app.tasks["quick"]

    @app.pipeline(name="second")
    def second(number: int) -> object:
        return quick.options(key="there", queue="mail")(quick(number))

    beside_a_worker(app, main)


def test_a_worker_that_starts_knows_what_is_paused(app: Penstock) -> None:
    app.pause_queue("mail")
    held = enqueue(app, "quick", 1, queue="mail")

    async def main(worker: Worker) -> None:
        assert worker.source.lanes.paused == {"mail"}
        assert await enqueue(app, "quick", 2).result_async(60) == 2
        assert held.status == "available"

    beside_a_worker(app, main)


def test_workers_are_given_other_queues(app: Penstock) -> None:
    other = enqueue(app, "quick", 1, queue="other")

    def told() -> str:
        (row,) = app.database.read(list_processes)
        assert isinstance(row.details, dict)
        return str(row.details["queues"])

    async def main(worker: Worker) -> None:
        assert await enqueue(app, "quick", 2, queue="mail").result_async(60) == 2
        assert app.set_queues("other:2", host=host_name(), why="night")
        assert not app.set_queues(["other:2"], host=host_name())
        assert await other.result_async(60) == 1
        await until(lambda: told() == "other:2")
        left = enqueue(app, "quick", 3, queue="mail")
        assert await enqueue(app, "quick", 4, queue="other").result_async(60) == 4
        assert left.status == "available"
        assert app.set_queues("all")
        await asyncio.to_thread(app.set_queues, None, host_name())
        assert await left.result_async(60) == 3
        await until(lambda: told() == "all")
        assert app.set_queues(None)
        await until(lambda: told() == "mail")

    beside_a_worker(app, main, queues="mail")
    assert [act.act for act in app.audit()] == ["set_queues"] * 4
    with pytest.raises(ConfigurationError):
        app.set_queues("")


def test_commands(app: Penstock) -> None:
    app.prepare()
    url = ("--database", app.settings.database_url)
    job = enqueue(app, "quick", 1, queue="mail", labels=["x"])
    assert "is paused" in call("queues", "pause", "mail", "--why", "audit", "--by", "ann", *url).stdout
    assert "already" in call("queues", "pause", "mail", *url).stdout
    for command in (["queues"], ["status"]):
        assert "mail is paused since" in call(*command, *url).stdout.replace("\n", " ")
    assert '"pause_why": "audit"' in call("queues", "--json", *url).stdout
    assert "queue_paused" in call("explain", job.id, "--json", *url).stdout
    assert "is paused since" in call("explain", job.id[:20], *url).stdout.replace("\n", " ")
    assert job.id in call("jobs", "--label", "x", "--json", *url).stdout
    assert "is resumed" in call("queues", "resume", "mail", *url).stdout
    assert "was not paused" in call("queues", "resume", "mail", *url).stdout
    assert "take from mail:3" in call("queues", "set", "mail:3", *url).stdout
    assert "started with" in call("queues", "set", "--reset", *url).stdout
    assert call("queues", "set", *url).exit_code == 2
    assert app.audit()[-1].by == "ann"


UNREADABLE = ["mail:x", ":", "mail,mail", "a b", "mail:0", "mail:²"]


@pytest.mark.parametrize("value", UNREADABLE)
def test_queues_that_cannot_be_read_are_ignored_and_named(app: Penstock, value: str) -> None:
    """By a worker that starts, which says so once; `doctor` names them."""
    control(app, "workers", "*", value)
    ignored: list[ControlIgnored] = []
    app.events.on(ControlIgnored, ignored.append)

    async def main(worker: Worker) -> None:
        assert await enqueue(app, "quick", 1).result_async(60) == 1
        app.pause_queue("other")
        await until(lambda: "other" in worker.source.lanes.paused)
        assert [event.host for event in ignored] == ["*"]

    beside_a_worker(app, main)
    (found,) = [one for one in waiting(_patient(app)) if one.level is Level.PROBLEM]
    assert "cannot be read" in found.message
    assert "penstock queues set" in found.advice


def test_a_running_worker_promotes_whatever_a_control_says(app: Penstock) -> None:
    async def main(worker: Worker) -> None:
        control(app, "workers", host_name(), "mail:x", revision=7)
        worker.housekeeping.call()
        await until(lambda: bool(worker.controls.unreadable))
        delayed = await app.tasks["quick"].options(delay=0.1).enqueue_async(1)
        assert await delayed.result_async(60) == 1
        app.pause_queue("mail")
        await until(lambda: "mail" in worker.source.lanes.paused)

    enqueue(app, "quick", 0)
    beside_a_worker(app, main)


def test_a_failure_to_follow_controls_stops_no_other_chore(app: Penstock) -> None:
    """It is told, and the same controls are not tried again and again."""

    async def main(worker: Worker) -> None:
        tried = []

        def refuse(controls: queue_controls.QueueControls) -> None:
            tried.append(controls.revision)
            raise LookupError("nothing can be followed")

        worker.housekeeping.follow_controls = refuse
        app.pause_queue("mail")
        delayed = await app.tasks["quick"].options(delay=0.1).enqueue_async(1)
        assert await delayed.result_async(60) == 1
        app.pause_queue("letters")
        await until(lambda: len(tried) == 2)
        delayed = await app.tasks["quick"].options(delay=0.1).enqueue_async(2)
        assert await delayed.result_async(60) == 2
        assert len(set(tried)) == len(tried) == 2

    enqueue(app, "quick", 0)
    beside_a_worker(app, main)


@pytest.mark.parametrize("revision", [2**63 - 1, -(2**63), 2_000_000_000])
def test_no_revision_overflows(app: Penstock, revision: int) -> None:
    """A worker starts, and every change of such a row is seen."""
    for name in ("a", "b"):
        control(app, "pause", name, "paused", revision=revision)

    async def main(worker: Worker) -> None:
        assert worker.source.lanes.paused == {"a", "b"}
        app.resume_queue("a")
        await until(lambda: worker.source.lanes.paused == {"b"})
        app.pause_queue("a")
        await until(lambda: worker.source.lanes.paused == {"a", "b"})
        assert await enqueue(app, "quick", 1).result_async(60) == 1

    beside_a_worker(app, main)


def control(app: Penstock, kind: str, name: str, value: str, revision: int = 1) -> None:
    """A row that a hand has made."""
    app.prepare()
    table = next(each for each in app.metadata.tables.values() if each.name.endswith("queue_controls"))
    row = {"kind": kind, "name": name, "value": value, "revision": revision, "changed_at": 0}
    with app.database.engine.begin() as connection:
        connection.execute(insert(table), [row | {"changed_by": "a hand", "why": ""}])
