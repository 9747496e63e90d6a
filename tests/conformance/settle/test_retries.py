"""values/retry, queue/settle: Errors, retries and timeouts: an error spends a retry, and only that; times are the
database's.
"""

import sys
import time
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, PlainSerializer

import penstock
from penstock import Cancel, Penstock, Retry, Snooze
from penstock.errors import JobFailed
from penstock.runtime.worker import Worker
from penstock.testing import drain, travel
from penstock.values.outcome import SHORTEST_SNOOZE
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import count, state
from tests.waiting import pass_time


class Declined(Exception):
    pass


class Busy(Declined):
    pass


def test_an_error_is_retried_after_growing_delays(app: Penstock) -> None:
    @app.task(retries=Retry(max=3, delay=10, factor=2, jitter=0))
    def fail() -> None:
        raise ValueError("no luck")

    job = fail.enqueue()
    assert drain(app) == 1
    assert job.status == "scheduled"
    assert state(app, job.id)["retry_count"] == 1
    waited = 0
    for retry, delay in enumerate((10, 20, 40), 1):
        with travel(app, waited + delay - 1):
            assert drain(app) == 0
        waited += delay
        with travel(app, waited):
            assert drain(app) == 1
        assert state(app, job.id)["retry_count"] == min(retry + 1, 3)
    assert job.status == "failed"
    assert [attempt.outcome for attempt in job.attempts()] == ["errored"] * 4
    with pytest.raises(JobFailed, match=r"retries_exhausted.*ValueError: no luck"):
        job.result(timeout=0)


def test_the_default_is_three_retries(app: Penstock) -> None:
    @app.task
    def fail() -> None:
        raise ValueError

    job = fail.enqueue()
    for hours in range(10):
        with travel(app, hours * 3600):
            drain(app)
    assert len(job.attempts()) == 4
    assert job.status == "failed"


def test_a_retry_succeeds_in_the_end(app: Penstock) -> None:
    tries: list[tuple[int, int]] = []

    @app.task(retries=Retry(max=5, delay=0))
    def flaky() -> str:
        current = penstock.current()
        tries.append((current.attempt, current.retry_count))
        if len(tries) < 3:
            raise ConnectionError
        return "done"

    job = flaky.enqueue()
    assert drain(app) == 3
    assert job.result(timeout=0) == "done"
    assert tries == [(1, 0), (2, 1), (3, 2)]
    assert [attempt.outcome for attempt in job.attempts()] == ["errored", "errored", "succeeded"]


def test_no_retries(app: Penstock) -> None:
    @app.task(retries=0)
    def fail() -> None:
        raise ValueError

    job = fail.enqueue()
    assert drain(app) == 1
    assert job.status == "failed"


def test_the_enqueue_may_have_its_own_policy(app: Penstock) -> None:
    @app.task(retries=0)
    def fail() -> None:
        raise Busy

    kept = fail.options(retries=Retry(max=2, delay=0, on=(Declined,))).enqueue()
    dropped = fail.options(retries=Retry(max=2, delay=0, never=(Declined,))).enqueue()
    drain(app)
    assert len(kept.attempts()) == 3
    assert len(dropped.attempts()) == 1


POLICIES = [
    (Retry(max=2, delay=0, on=(Declined,)), 3, "retries_exhausted"),
    (Retry(max=2, delay=0, on=(Busy,)), 3, "retries_exhausted"),
    (Retry(max=2, delay=0, on=(ValueError,)), 1, "not_retryable"),
    (Retry(max=2, delay=0, never=(Declined,)), 1, "not_retryable"),
    (Retry(max=2, delay=0, never=(ValueError,)), 3, "retries_exhausted"),
    (Retry(max=2, delay=0, on=(Declined,), never=(Busy,)), 1, "not_retryable"),
    (Retry(max=2, delay=0, on=("builtins.Exception",)), 3, "retries_exhausted"),
]


def test_policies_choose_by_exception(app: Penstock) -> None:
    @app.task
    def fail() -> None:
        raise Busy

    for policy, attempts, reason in POLICIES:
        job = fail.options(retries=policy).enqueue()
        assert drain(app) == attempts, policy
        with pytest.raises(JobFailed, match=reason):
            job.result(timeout=0)


def test_an_attempt_tells_the_whole_story(app: Penstock) -> None:
    @app.task(retries=0)
    def fail() -> None:
        raise Declined("card\0 \ud800 ü")

    job = fail.enqueue()
    drain(app)
    (attempt,) = job.attempts()
    assert attempt.outcome == "errored"
    assert attempt.error is not None
    assert attempt.error.endswith("Declined: card\u2400 \ufffd ü")
    assert attempt.traceback is not None
    assert "in fail" in attempt.traceback
    assert "penstock/runtime" not in attempt.traceback
    assert attempt.process is not None
    assert attempt.started_at <= attempt.finished_at
    assert attempt.started_at.tzinfo is not None


def test_even_what_is_no_exception_is_only_an_error(app: Penstock) -> None:
    errors = [SystemExit(3), GeneratorExit(), BaseException("odd")]

    @app.task(retries=0)
    def fail(number: int) -> None:
        raise errors[number]

    jobs = fail.enqueue_many([(n,) for n in range(3)])
    drain(app)
    for job, error in zip(jobs, errors, strict=True):
        assert job.status == "failed"
        assert type(error).__name__ in str(job.attempts()[0].error)


@pytest.mark.parametrize("kind", ["async", "thread"])
def test_nor_does_it_end_the_worker_before_or_after_the_handler(app: Penstock, kind: Any) -> None:
    """Arguments are read, and results written, with code of the user's."""

    def check(value: int) -> int:
        return value if value > 0 or not reading else sys.exit("no such number")

    def write(value: int) -> int:
        return sys.exit("no result")

    reading = False
    Checked = Annotated[int, AfterValidator(check)]
    Written = Annotated[int, PlainSerializer(write)]

    @app.task(retries=0, executor=kind)
    async def double(number: Checked) -> Written:
        return number * 2

    jobs = double.enqueue_many([(-1,), (1,)])
    reading = True
    assert drain(app) == 2
    for job, error in zip(jobs, ["no such number", "no result"], strict=True):
        assert f"SystemExit: {error}" in str(job.attempts()[0].error)


def test_an_error_whose_text_is_endless_is_cut(app: Penstock) -> None:
    @app.task(retries=0)
    def fail() -> None:
        raise ValueError("x" * 10_000_000)

    job = fail.enqueue()
    drain(app)
    assert len(job.attempts()[0].error or "") < 10_000


def test_a_snooze_of_no_time_does_not_keep_a_worker_busy(app: Penstock) -> None:
    """Without a pause between them, one job would be run a thousand times a second."""
    seen: list[float] = []

    @app.task
    async def poll() -> Snooze | str:
        seen.append(time.monotonic())
        return Snooze(0) if len(seen) < 8 else "ready"

    async def main(_: Worker) -> None:
        assert await (await poll.enqueue_async()).result_async(timeout=60) == "ready"

    beside_a_worker(app, main)
    assert seen[-1] - seen[0] >= 7 * SHORTEST_SNOOZE * 0.9


def test_snooze_spends_nothing(app: Penstock) -> None:
    seen: list[int] = []

    @app.task(retries=0, max_crashes=0)
    def later() -> Snooze | str:
        seen.append(penstock.current().retry_count)
        return Snooze(60) if len(seen) < 4 else "done"

    job = later.enqueue()
    for minutes in range(4):
        with travel(app, minutes * 60):
            assert drain(app) == 1
            assert drain(app) == 0
    assert job.result(timeout=0) == "done"
    assert seen == [0, 0, 0, 0]
    assert [attempt.outcome for attempt in job.attempts()] == ["snoozed"] * 3 + ["succeeded"]
    assert count(app, "scheduled") == 0


def test_a_caller_that_waits_for_ever_waits_for_very_long(app: Penstock) -> None:
    @app.task
    def later() -> Snooze:
        return Snooze(1e300)

    @app.task(retries=Retry(max=1, delay=1e300))
    def fail() -> None:
        raise ValueError

    jobs = later.enqueue(), fail.enqueue()
    drain(app)
    assert [job.status for job in jobs] == ["scheduled", "scheduled"]
    with travel(app, 50 * 365 * 86_400):
        assert drain(app) == 0


def test_cancel_ends_the_job_without_error(app: Penstock) -> None:
    @app.task
    def stop() -> Cancel:
        return Cancel("nothing to do")

    job = stop.enqueue()
    assert drain(app) == 1
    assert job.status == "cancelled"
    assert [attempt.outcome for attempt in job.attempts()] == ["cancelled"]
    with pytest.raises(JobFailed, match="cancelled.*nothing to do"):
        job.result(timeout=0)


def test_a_timeout_counts_as_an_error(app: Penstock) -> None:
    @app.task(timeout=0.02, retries=Retry(max=1, delay=0))
    def slow() -> None:
        pass_time(0.03)

    job = slow.enqueue()
    assert drain(app) == 2
    assert [attempt.outcome for attempt in job.attempts()] == ["timed_out"] * 2
    with pytest.raises(JobFailed, match=r"timed_out.*no result after 0.02 s"):
        job.result(timeout=0)


@pytest.mark.parametrize(
    ("policy", "attempts"),
    [
        (Retry(max=1, delay=0, never=(TimeoutError,)), 1),
        (Retry(max=1, delay=0, on=(ConnectionError,)), 1),
        (Retry(max=1, delay=0, on=(TimeoutError,)), 2),
        (Retry(max=1, delay=0, never=(ValueError,)), 2),
    ],
)
def test_to_a_policy_a_timeout_is_a_timeout_error(app: Penstock, policy: Retry, attempts: int) -> None:
    @app.task(timeout=0.02, retries=policy)
    def slow() -> None:
        pass_time(0.03)

    job = slow.enqueue()
    assert drain(app) == attempts
    with pytest.raises(JobFailed, match="timed_out"):
        job.result(timeout=0)


def test_a_failing_head_does_not_hold_up_what_is_behind_it(app: Penstock) -> None:
    ran: list[int] = []

    @app.task(retries=Retry(max=100, delay=0))
    def fail() -> None:
        raise ValueError

    @app.task
    def note(number: int) -> None:
        ran.append(number)

    fail.options(key="head").enqueue()
    note.enqueue_many([(n,) for n in range(5)])
    assert drain(app, limit=7) == 7
    assert ran == [0, 1, 2, 3, 4]
