"""queue/rules/second_look: Jobs that expire: one that has not started by its time is never run."""

from datetime import UTC, datetime, timedelta

import pytest

from penstock import Concurrency, Penstock
from penstock.errors import ConfigurationError, JobFailed
from penstock.queue.release import release
from penstock.testing import drain, travel
from tests.conformance.embedded import beside_a_worker
from tests.conformance.operate.helpers import register, take
from tests.conformance.rows import count


def test_a_job_that_has_not_started_by_its_time_ends_without_being_run(app: Penstock) -> None:
    ran: list[int] = []

    @app.task(name="note", expires=3600)
    def note(number: int) -> None:
        ran.append(number)

    by_task = note.enqueue(1)
    soon = note.options(expires=timedelta(seconds=60)).enqueue(2)
    at = note.options(expires=datetime.now(UTC) + timedelta(seconds=60)).enqueue(3)
    never = note.options(expires=None).enqueue(4)
    several = note.options(expires=60).enqueue_many([(5,), (6,)])
    with travel(app, 61):
        assert drain(app) == 2
        assert [job.status for job in (by_task, soon, at, never)] == [
            "succeeded",
            "cancelled",
            "cancelled",
            "succeeded",
        ]
    assert (ran, {job.status for job in several}) == ([1, 4], {"cancelled"})
    with pytest.raises(JobFailed) as caught:
        soon.result()
    assert caught.value.reason == "expired"
    assert (soon.attempts(), count(app, "claims"), count(app, "dead_letters")) == ([], 0, 0)
    assert "expires" in app.explain(soon).text
    assert soon.retry()
    with travel(app, 30):
        assert drain(app) == 1


def test_one_that_has_started_does_not_expire(app: Penstock) -> None:
    tries: list[int] = []

    @app.task(name="flaky", expires=5)
    def flaky() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("again")

    job = flaky.enqueue()
    drain(app)
    with travel(app, 600):
        drain(app)
    assert (len(tries), job.status) == (2, "succeeded")


def test_one_that_was_claimed_and_given_back_has_not_started(app: Penstock) -> None:
    @app.task(name="note", expires=60)
    def note() -> None:
        raise AssertionError

    job = note.enqueue()
    process = register(app)
    (claim,) = take(app, process)
    app.database.in_transaction(release, [(claim.job_id, claim.token)])
    with travel(app, 61):
        assert drain(app) == 0
    assert job.status == "cancelled"


def test_a_worker_ends_it_beside_others_and_with_limits(app: Penstock) -> None:
    @app.task(name="late", expires=0.001, limits=[Concurrency(1)])
    def late() -> None:
        raise AssertionError

    @app.task(name="note")
    def note(number: int) -> int:
        return number

    gone = late.options(at=datetime.now(UTC) + timedelta(milliseconds=50)).enqueue()

    async def main(_: object) -> None:
        with pytest.raises(JobFailed):
            await gone.result_async(60)
        assert await note.enqueue(1).result_async(60) == 1

    beside_a_worker(app, main)
    assert (gone.status, count(app, "slots"), count(app, "claims")) == ("cancelled", 0, 0)


def test_what_is_no_time_is_refused(app: Penstock) -> None:
    @app.task(name="note")
    def note() -> None: ...

    for wrong in (0, -1, "soon", datetime.now()):
        with pytest.raises(ConfigurationError):
            note.options(expires=wrong).enqueue()  # type: ignore[arg-type]
