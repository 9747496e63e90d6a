"""queue/control: Acts on a job that waits: deleted, or given another queue, priority or time. A race that is lost is
a value.
"""

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Concurrency, Penstock
from penstock.errors import ConfigurationError, PenstockError
from penstock.task import Task
from penstock.testing import drain, travel
from tests.conformance.operate.helpers import register, take
from tests.conformance.rows import count

LEFT = ("jobs", "job_states", "job_keys", "job_labels", "job_followers", "executions", "dead_letters")


@pytest.fixture
def ran() -> list[int]:
    return []


@pytest.fixture
def note(app: Penstock, ran: list[int]) -> Task[Any, Any]:
    @app.task(name="note", retries=0)
    def note(number: int) -> int:
        if number < 0:
            raise ValueError("no")
        ran.append(number)
        return number

    return note


def test_a_job_that_is_not_running_is_deleted_with_all_that_it_has(
    app: Penstock, note: Task[Any, Any], ran: list[int]
) -> None:
    failed = note.options(key="f", labels=["x"]).enqueue(-1)
    done = note.enqueue(1)
    drain(app)
    ready, later = note.options(key="k").enqueue(2), note.options(delay=60).enqueue(3)
    follower = later.then(note, 4)
    assert [job.delete() for job in (failed, done, ready, later)] == [True] * 4
    assert follower.status == "skipped"
    assert follower.delete()
    with travel(app, 61):
        assert drain(app) == 0
    assert (ran, {table: count(app, table) for table in LEFT}) == ([1], dict.fromkeys(LEFT, 0))
    assert not ready.delete()
    with pytest.raises(PenstockError, match="there is no job"):
        _ = ready.status
    assert [act.act for act in app.audit(ready.id)] == ["delete"]
    assert note.options(key="k").enqueue(5) != ready


def test_a_running_job_and_a_step_stay(app: Penstock, note: Task[Any, Any]) -> None:
    running = note.enqueue(1)
    take(app, register(app))
    assert not running.delete()
    assert not running.update(priority=1)

    @app.pipeline(name="noted")
    def noted() -> Any:
        return note(2)

    step = app.job(noted.trigger().steps()[0].id)
    assert (step.delete(), step.update(queue="mail")) == (False, False)
    assert (running.status, count(app, "jobs")) == ("running", 2)


def test_a_job_that_waits_gets_another_place(app: Penstock, note: Task[Any, Any], ran: list[int]) -> None:
    jobs = note.enqueue_many([(1,), (2,), (3,)])
    assert jobs[2].update(priority=5)
    assert jobs[1].update(queue="mail")
    assert (jobs[2].priority, jobs[1].queue, count(app, "availabilities")) == (5, "mail", 1)
    assert drain(app, queues="default") == 2
    assert ran == [3, 1]
    assert jobs[1].update(delay=timedelta(seconds=60), queue="default", priority=-1)
    assert drain(app) == 0
    soon = datetime.now(UTC) + timedelta(seconds=30)
    assert jobs[1].update(at=soon)
    assert jobs[1].due_at is not None
    assert abs(jobs[1].due_at - soon) < timedelta(milliseconds=1)
    assert jobs[1].update(priority=7)
    assert abs(jobs[1].refresh().due_at - soon) < timedelta(milliseconds=1)  # type: ignore[operator]
    with travel(app, 31):
        assert drain(app) == 1
    assert not jobs[1].update(delay=0)
    assert (ran, count(app, "scheduled")) == ([3, 1, 2], 0)
    assert [act.act for act in app.audit(jobs[1].id)] == ["update"] * 4
    for wrong in ({}, {"delay": 1, "at": soon}, {"queue": "a b"}, {"priority": "high"}):
        with pytest.raises(ConfigurationError):
            jobs[1].update(**wrong)


def test_a_job_that_waits_for_a_limit_is_moved(app: Penstock, ran: list[int]) -> None:
    @app.task(name="alone", limits=[Concurrency(1)])
    def alone(number: int) -> None:
        if number == 0:
            waiting = alone.enqueue(1)
            drain(app)
            assert waiting.update(queue="mail")
            assert count(app, "parked") == 0
        ran.append(number)

    alone.enqueue(0)
    drain(app)
    assert ran == [0, 1]


@pytest.mark.parametrize("act", ["delete", "update"])
def test_acts_against_claims(app: Penstock, note: Task[Any, Any], ran: list[int], act: str) -> None:
    """What was deleted did not run, what was not ran once; whatever was moved ran once."""
    jobs = note.enqueue_many([(number,) for number in range(20)])
    barrier, answers = threading.Barrier(2), dict[int, bool]()

    def steer() -> None:
        barrier.wait()
        for number, job in reversed(list(enumerate(jobs))):
            answers[number] = job.delete() if act == "delete" else job.update(queue="mail")

    thread = threading.Thread(target=steer)
    thread.start()
    barrier.wait()
    drain(app)
    thread.join()
    drain(app)
    deleted = {number for number, answer in answers.items() if answer and act == "delete"}
    assert len(ran) == len(set(ran))
    if act == "update":
        assert sorted(ran) == list(range(20))
    else:
        there = {number for number, job in enumerate(jobs) if app.jobs(limit=100).count(job)}
        assert there == set(range(20)) - deleted
        assert there <= set(ran)


def test_a_renamed_task_takes_the_jobs_of_its_old_name(app: Penstock, make_app: Any, ran: list[int]) -> None:
    @app.task(name="old")
    def old(number: int) -> None: ...

    first, keyed = old.enqueue(1), old.options(key="k").enqueue(2)
    new_app = make_app()

    @new_app.task(name="new", aliases=["old"], limits=[Concurrency(1)])
    def new(number: int) -> None:
        ran.append(number)

    assert new.options(key="k").enqueue(3).id == keyed.id
    assert new.options(key="k", unique="while_pending").enqueue(3).id == keyed.id
    assert (drain(new_app), ran) == (2, [1, 2])
    again = new.options(key="k", unique="while_pending").enqueue(4)
    assert again.id not in (first.id, keyed.id)
    assert (drain(new_app), again.task) == (1, "new")
    for name in ("new", "old"):
        with pytest.raises(PenstockError, match="name of task"):
            new_app.task(name="third", aliases=[name])(lambda: None)


def test_what_follows_several_runs(app: Penstock, note: Task[Any, Any]) -> None:
    @app.pipeline(name="noted")
    def noted(number: int) -> Any:
        return note(number)

    one, two = noted.trigger(1), noted.trigger(2)
    last = app.after([one, two]).then(noted, 3)
    lost = app.after([one, noted.trigger(-1)]).then(noted, 4)
    drain(app)
    assert (last.result(0), lost.status) == (3, "skipped")
    with pytest.raises(PenstockError, match="give the runs"):
        app.after([])
