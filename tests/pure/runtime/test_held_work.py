"""runtime/pump/job_source, runtime/executors/dispatcher: a worker does not touch claims that it has lost."""

from typing import Any, cast

from penstock.handler_environment import HandlerFlags
from penstock.queue.jobs import Claim
from penstock.runtime.executors.job_work import JobWork
from penstock.runtime.pump.job_source import HeldClaims
from penstock.values.retry import Retry


def test_a_receipt_goes_with_the_last_job_of_its_claim() -> None:
    holdings = HeldClaims()
    holdings.add([_claim("a"), _claim("b")])
    assert holdings.emptied_by([_claim("a")]) == []
    assert holdings.emptied_by([_claim("a"), _claim("b")]) == [7]


def test_the_receipt_of_a_claim_that_was_lost_is_left_to_the_reaper() -> None:
    """It may be all that leads to the other jobs of the same claim."""
    holdings = HeldClaims()
    holdings.add([_claim("a"), _claim("b")])
    holdings.clear()
    assert holdings.emptied_by([_claim("a")]) == []


def test_what_was_given_back_does_not_begin() -> None:
    work = _work(timeout=1.0)
    assert work.end_once()
    assert not work.begin_once()
    assert not work.started


def test_time_counts_from_the_beginning() -> None:
    work = _work(timeout=60.0)
    assert work.time_left() == 60.0
    assert work.begin_once()
    left = work.time_left()
    assert left is not None
    assert 0 < left <= 60.0
    work.end_once()
    assert work.time_left() is None


def _claim(job_id: str) -> Claim:
    return Claim(job_id, 7, 1, "task", "default", 0, "{}", None, 0, 0)


def _work(timeout: float) -> JobWork:
    return JobWork(("a", 1), timeout, "thread", HandlerFlags(), _claim("a"), cast(Any, None), Retry())
