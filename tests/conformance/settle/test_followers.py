"""queue/rules/followers: Callbacks of jobs and jobs that follow others: enqueued with the end that they are for,
exactly once.
"""

import threading
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ConfigurationError, JobFailed, PenstockError
from penstock.job import Job
from penstock.runtime.worker import Worker
from penstock.task import Task
from penstock.testing import crash_at, drain, travel
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import count, state
from tests.waiting import until

Heard = list[dict[str, Any]]


@pytest.fixture
def heard() -> Heard:
    return []


@pytest.fixture
def work(app: Penstock, heard: Heard) -> Task[Any, Any]:
    @app.task(name="hear", queue="mail")
    def hear(job_id: str, status: str, **more: Any) -> None:
        heard.append({"job_id": job_id, "status": status, **more})

    @app.task(name="cry")
    def cry(error: str | None, reason: str) -> None:
        heard.append({"error": error, "reason": reason})

    @app.task(name="work", retries=0, on_success=hear, on_failure=[cry])
    def work(number: int) -> int:
        if number < 0:
            raise ValueError("no")
        return number

    return work


@pytest.fixture
def note(app: Penstock) -> Task[Any, Any]:
    @app.task(name="note", retries=0)
    def note(number: int = 0) -> int:
        if number < 0:
            raise ValueError("no")
        return number

    return note


def test_a_callback_is_told_of_the_end(app: Penstock, work: Task[Any, Any], heard: Heard) -> None:
    good, bad = work.enqueue(7), work.enqueue(-1)
    cancelled = work.enqueue(8)
    cancelled.cancel()
    silent = work.options(on_success=None, on_failure=None).enqueue(9)
    assert drain(app) == 5
    told = {
        "job_id": good.id,
        "status": "succeeded",
        "task": "work",
        "reason": None,
        "error": None,
        "result": 7,
    }
    assert sorted(heard, key=len) == [{"error": "ValueError: no", "reason": "retries_exhausted"}, told]
    assert (bad.status, silent.status, cancelled.status) == ("failed", "succeeded", "cancelled")
    assert app.jobs(task="hear")[0].queue == "mail"
    heard.clear()
    bad.retry()
    drain(app)
    assert len(heard) == 1


@pytest.mark.parametrize("point", ["settle.1", "settle.commit", "settle.committed", "enqueue.1"])
def test_a_worker_that_dies_in_the_settle_calls_back_once(
    app: Penstock, work: Task[Any, Any], heard: Heard, point: str
) -> None:
    work.enqueue(7)
    with crash_at(point):
        drain(app)
    drain(app)
    assert [each["result"] for each in heard] == [7]


def test_a_job_whose_crashes_are_spent_calls_back_too(
    app: Penstock, work: Task[Any, Any], heard: Heard
) -> None:
    job = work.options(max_crashes=0).enqueue(7)
    waiting = job.then(work, 8)
    with crash_at("execute.after"):
        drain(app)
    drain(app)
    assert (job.status, [each["reason"] for each in heard]) == ("failed", ["crashes_exhausted"])
    assert waiting.status == "skipped"


def test_callbacks_by_a_worker(app: Penstock, work: Task[Any, Any], heard: Heard) -> None:
    """On PostgreSQL, where successes are settled by one statement, and presumed."""

    async def main(_: Worker) -> None:
        jobs = [await work.enqueue_async(number) for number in range(5)]
        for job in jobs:
            await job.result_async(60)
        await until(lambda: len(heard) == 5)

    beside_a_worker(app, main)
    assert sorted(each["result"] for each in heard) == [0, 1, 2, 3, 4]


def test_what_cannot_be_called_back_is_refused(app: Penstock, note: Task[Any, Any]) -> None:
    @app.task(name="odd")
    def odd(weather: str) -> None: ...

    for wrong in ({"on_success": "hear"}, {"on_success": [7]}, {"on_failure": "ignore"}, {"on_success": odd}):
        with pytest.raises(ConfigurationError):
            note.options(**wrong).enqueue(1)
    assert count(app, "jobs") == 0


def test_a_follower_waits_for_the_success(app: Penstock, note: Task[Any, Any]) -> None:
    first = note.enqueue(1)
    second = first.then(note, 2)
    third = second.then(note.options(delay=60, queue="mail"), 3)
    assert (second.status, third.status) == ("waiting", "waiting")
    assert [cause.kind for cause in app.explain(second).causes] == ["waits_for_job"]
    assert drain(app) == 2
    assert (second.result(), third.status) == (2, "scheduled")
    with travel(app, 61):
        assert drain(app) == 1
    late = first.then(note, 4)
    assert (late.status, drain(app), late.result()) == ("available", 1, 4)
    assert count(app, "job_followers") == 0
    assert [act.act for act in app.audit(first.id)] == ["then", "then"]


def test_a_follower_of_a_job_that_ends_badly_is_skipped_with_all_that_follow(
    app: Penstock, note: Task[Any, Any]
) -> None:
    failing, cancelled = note.enqueue(-1), note.options(delay=60).enqueue(1)
    chain = [failing.then(note, 1)]
    chain += [chain[0].then(note, 2), chain[0].then(note, 3)]
    after = cancelled.then(note, 4)
    cancelled.cancel()
    assert drain(app) == 1
    chain.append(failing.then(note, 5))
    assert {job.status for job in [*chain, after]} == {"skipped"}
    with pytest.raises(JobFailed) as caught:
        chain[0].result()
    assert caught.value.reason == "upstream_failed"
    assert count(app, "job_followers") == 0


def test_a_follower_is_kept_over_retries_and_crashes(app: Penstock) -> None:
    tries: list[int] = []

    @app.task(name="flaky", retries=2)
    def flaky() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("again")

    @app.task(name="last")
    def last() -> str:
        return "done"

    job = flaky.enqueue()
    follower = job.then(last)
    with crash_at("execute.after"):
        drain(app)
    for seconds in (0, 100, 200):
        with travel(app, seconds):
            drain(app)
    assert (job.status, follower.result()) == ("succeeded", "done")
    assert state(app, job.id)["reason"] is None
    assert job.refresh().finished_at is not None


def test_a_follower_can_be_cancelled_and_nothing_else_can_be_followed(
    app: Penstock, note: Task[Any, Any]
) -> None:
    job = note.enqueue(1)
    follower = job.then(note, 2)
    assert follower.cancel()
    assert (drain(app), follower.status) == (1, "cancelled")

    @app.pipeline(name="noted")
    def noted() -> Any:
        return note(1)

    run = noted.trigger()
    with pytest.raises(PenstockError, match="is a step"):
        app.job(run.steps()[0].id).then(note)
    with pytest.raises(ConfigurationError, match="give a task"):
        job.then(noted)
    with pytest.raises(PenstockError, match="there is no job"):
        app.job(run.id).then(note)


def test_registering_against_the_end(app: Penstock, note: Task[Any, Any]) -> None:
    """A worker ends jobs while others follow them: every follower runs, and none twice."""
    app.prepare()
    barrier, made = threading.Barrier(3), list[Job[Any]]()
    jobs = note.enqueue_many([(number,) for number in range(20)])

    def follow() -> None:
        barrier.wait()
        made.extend([job.then(note, 100) for job in jobs])

    def end() -> None:
        barrier.wait()
        drain(app)

    threads = [threading.Thread(target=target) for target in (follow, follow, end)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    drain(app)
    assert len(made) == 40
    assert {job.status for job in made} == {"succeeded"}
    assert all(len(job.attempts()) == 1 for job in made)
    assert count(app, "job_followers") == 0


def test_a_worker_lets_followers_go(app: Penstock, note: Task[Any, Any]) -> None:
    """On PostgreSQL the success of a job that is followed is not settled by the one statement."""

    async def main(_: Worker) -> None:
        for _round in range(5):
            job = await note.enqueue_async(1)
            follower = await job.then_async(note, 2)
            assert await follower.result_async(60) == 2

    beside_a_worker(app, main)
