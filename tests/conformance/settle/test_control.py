"""queue/control: Steering from outside: cancel, retry, result, attempts."""

import asyncio
import threading

import pytest

import penstock
from penstock import Penstock, Retry
from penstock.database.dialect import Lane
from penstock.errors import JobFailed, ResultTimeout
from penstock.queue import control
from penstock.queue.claim import claim
from penstock.queue.jobs import Attempt, tier_of
from penstock.queue.settle import settle
from penstock.result_wait import ResultWaiter
from penstock.runtime.liveness.heartbeat import Heartbeat
from penstock.runtime.liveness.process_row import Identity
from penstock.testing import drain, travel
from penstock.values.ids import new_token
from penstock.values.outcome import Outcome
from penstock.values.status import OutcomeKind
from tests.conformance.rows import count, counts
from tests.conformance.settle.test_retention import prune
from tests.waiting import until


def test_a_waiting_job_is_cancelled_at_once(app: Penstock) -> None:
    @app.task
    def note() -> None: ...

    job = note.enqueue()
    assert job.cancel()
    assert job.status == "cancelled"
    assert drain(app) == 0
    assert not job.cancel(), "it is over already"
    assert job.attempts() == []
    with pytest.raises(JobFailed, match="cancelled"):
        job.result(timeout=0)
    assert count(app, "availabilities") == 0


def test_a_scheduled_job_is_cancelled_at_once(app: Penstock) -> None:
    @app.task
    def note() -> None: ...

    job = note.options(delay=60).enqueue()
    assert asyncio.run(job.cancel_async())
    with travel(app, 120):
        assert drain(app) == 0
    assert job.status == "cancelled"
    assert count(app, "scheduled") == 0


def test_a_job_that_waits_for_its_retry_is_cancelled(app: Penstock) -> None:
    @app.task
    def fail() -> None:
        raise ValueError

    job = fail.enqueue()
    drain(app)
    assert job.cancel()
    with travel(app, 3600):
        assert drain(app) == 0
    assert job.status == "cancelled"


def test_a_cancellation_wins_over_what_a_running_handler_returns(app: Penstock) -> None:
    @app.task
    def note() -> str:
        assert app.job(penstock.current().id).cancel()
        return "finished all the same"

    job = note.enqueue()
    assert drain(app) == 1
    assert job.status == "cancelled"
    assert [attempt.outcome for attempt in job.attempts()] == ["cancelled"]
    assert count(app, "cancellations") == 0


def test_an_answer_that_got_lost_is_given_again(app: Penstock) -> None:
    """The transaction is tried again after a lost answer: what the first try has done is this caller's doing."""

    @app.task(retries=0)
    def note() -> None:
        raise ValueError

    job = note.enqueue()
    cancel, retry, discard = control.cancelling(app.follow), control.retrying(), control.discarding()
    for action in (cancel, retry):
        assert app.database.in_transaction(action, [job.id]) == [job.id]
        assert app.database.in_transaction(action, [job.id]) == [job.id]
    drain(app)
    for _ in range(2):
        assert app.database.in_transaction(discard, [job.id]) == [job.id]
    assert app.database.in_transaction(control.discarding(), [job.id]) == [], (
        "another operator comes too late"
    )
    assert app.database.in_transaction(control.cancelling(app.follow), [job.id]) == []


def test_an_answer_that_got_lost_is_given_again_about_a_job_that_is_gone(app: Penstock) -> None:
    """A caller that asks again may have slept for longer than finished jobs are kept."""

    @app.task
    def note() -> None: ...

    job, other = note.enqueue(), note.enqueue()
    cancel = control.cancelling(app.follow)
    assert app.database.in_transaction(cancel, [job.id]) == [job.id]
    assert drain(app) == 1
    with travel(app, 60):
        assert prune(app, age=1) == 2
        assert app.database.in_transaction(cancel, [job.id, other.id]) == [job.id]
        assert app.database.in_transaction(control.cancelling(app.follow), [job.id]) == []


def test_a_cancellation_is_told_until_the_claim_is_over(app: Penstock) -> None:
    """A claim on its way to its handler does not hear it the first time."""

    @app.task
    def note() -> None: ...

    told: list[object] = []
    identity = Identity(app.database, app.events, "all", None, {})
    identity.register()
    beat = Heartbeat(
        app.database,
        identity,
        app.events,
        busy=lambda: True,
        cancelled=told.append,
        declared_dead=lambda: None,
        knows=lambda _: True,
        in_doubt=lambda: None,
    )
    job = note.enqueue()
    lanes = [Lane("default", tier_of(0), 0, 1)]
    claims, _ = app.database.in_transaction(claim, lanes, app.task_names, 1, new_token(), identity.id)
    assert job.cancel()
    beat.turn()
    beat.turn()
    assert told == [{(job.id, 1)}] * 2
    outcome = Outcome(OutcomeKind.SUCCEEDED, "null")
    app.database.in_transaction(settle, [Attempt(claims[0], outcome)], identity.id)
    assert job.status == "cancelled"
    beat.turn()
    assert len(told) == 2
    assert count(app, "cancellations") == 0
    beat.link.close()


def test_what_is_over_cannot_be_cancelled(app: Penstock) -> None:
    @app.task
    def note() -> int:
        return 1

    job = note.enqueue()
    drain(app)
    assert not job.cancel()
    assert job.result(timeout=0) == 1


def test_a_failed_job_is_retried_with_fresh_budgets(app: Penstock) -> None:
    broken = True

    @app.task(retries=Retry(max=1, delay=0))
    def flaky() -> str:
        if broken:
            raise ValueError
        return "done"

    job = flaky.enqueue()
    drain(app)
    assert job.status == "failed"
    assert count(app, "dead_letters") == 1
    assert job.retry()
    assert (job.status, count(app, "dead_letters")) == ("available", 0)
    assert not job.retry(), "it is not over"
    drain(app)
    assert len(job.attempts()) == 4
    broken = False
    assert asyncio.run(job.retry_async())
    drain(app)
    assert job.result(timeout=0) == "done"
    assert not job.retry(), "it has succeeded"


@pytest.mark.parametrize("delay", [0, 60])
def test_a_cancelled_job_that_is_retried_runs_once(app: Penstock, delay: int) -> None:
    """Its old place in the queue is still there when it gets a new one."""
    ran: list[int] = []

    @app.task(retries=Retry(max=1, delay=0))
    def note() -> None:
        ran.append(1)

    job = note.options(delay=delay).enqueue()
    for _ in range(3):
        assert job.cancel()
        assert job.retry()
    drain(app)
    with travel(app, 120):
        drain(app)
    assert ran == [1]
    assert [attempt.outcome for attempt in job.attempts()] == ["succeeded"]
    left = counts(app)
    assert (left["availabilities"], left["scheduled"], left["claims"]) == (0, 0, 0)


def test_an_old_schedule_does_not_hasten_a_retry(app: Penstock) -> None:
    @app.task(retries=Retry(max=3, delay=1000, jitter=0))
    def fail() -> None:
        raise ValueError

    job = fail.options(delay=60).enqueue()
    job.cancel()
    job.retry()
    assert drain(app) == 1
    with travel(app, 100):
        assert drain(app) == 0
    with travel(app, 1000):
        assert drain(app) == 1


def test_a_result_that_takes_too_long_says_so(app: Penstock) -> None:
    @app.task
    def note() -> int:
        return 1

    job = note.enqueue()
    with pytest.raises(ResultTimeout, match="it is available"):
        job.result(timeout=0.01)
    with pytest.raises(TimeoutError):
        asyncio.run(job.result_async(timeout=0.01))
    drain(app)
    assert job.result(timeout=0.01) == 1


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when a caller waits for a result; one that is not woken waits for an hour."""
    begun = threading.Event()

    def pause(_: ResultWaiter) -> float:
        begun.set()
        return 3600

    monkeypatch.setattr(ResultWaiter, "_pause", pause)
    return begun


def test_who_waits_for_a_result_is_woken(app: Penstock, waits: threading.Event) -> None:
    @app.task
    def note() -> str:
        return "done"

    job = note.enqueue()
    found: list[str] = []
    waiter = threading.Thread(target=lambda: found.append(job.result(timeout=100)))
    waiter.start()
    assert waits.wait(60)
    drain(app)
    waiter.join(60)
    assert found == ["done"]


def test_who_awaits_a_result_is_woken_too(app: Penstock, waits: threading.Event) -> None:
    @app.task
    def note() -> str:
        return "done"

    async def main() -> str:
        job = await note.enqueue_async()
        waiter = asyncio.create_task(job.result_async(timeout=100))
        await until(waits.is_set)
        await asyncio.to_thread(drain, app)
        return await asyncio.wait_for(waiter, 60)

    assert asyncio.run(main()) == "done"


def test_attempts_from_the_async_door(app: Penstock) -> None:
    @app.task
    def note() -> None: ...

    job = note.enqueue()
    drain(app)
    assert asyncio.run(job.attempts_async()) == job.attempts()


def test_handles_are_equal_by_id(app: Penstock) -> None:
    @app.task
    def note() -> None: ...

    job = note.enqueue()
    assert app.job(job.id) == job
    assert len({app.job(job.id), job}) == 1
    assert job.id in repr(job)
