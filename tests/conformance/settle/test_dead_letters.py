"""operate/dead_letters, queue/control: Dead letters: what spent its budget is listed, and can be retried or
discarded, one or many.
"""

import asyncio

import pytest

from penstock import Penstock
from penstock.errors import ConfigurationError, JobFailed
from penstock.testing import crash_at, drain


def test_failed_jobs_are_listed_and_can_be_retried(app: Penstock) -> None:
    broken = True

    @app.task(retries=0)
    def pay(order: int) -> int:
        if broken:
            raise ValueError(f"order {order}")
        return order

    jobs = pay.enqueue_many([(n,) for n in range(3)])
    drain(app)
    assert {job.id for job in app.dead_letters()} == {job.id for job in jobs}
    broken = False
    assert app.dead_letters()[0].retry()
    assert len(app.dead_letters()) == 2
    assert app.dead_letters().retry() == 2
    assert len(app.dead_letters()) == 0
    drain(app)
    assert [job.result(timeout=0) for job in jobs] == [0, 1, 2]


def test_discarded_jobs_are_gone_from_the_list_for_good(app: Penstock) -> None:
    @app.task(retries=0)
    def pay() -> None:
        raise ValueError

    job = pay.enqueue()
    drain(app)
    assert asyncio.run(_discard(app)) == 1
    assert len(app.dead_letters()) == 0
    assert job.status == "cancelled"
    assert len(job.attempts()) == 1
    with pytest.raises(JobFailed, match="discarded"):
        job.result(timeout=0)


async def _discard(app: Penstock) -> int:
    return await (await app.dead_letters_async()).discard_async()


def test_they_can_be_chosen(app: Penstock) -> None:
    @app.task(retries=0)
    def pay() -> None:
        raise ValueError

    @app.task(max_crashes=0)
    def die() -> None: ...

    first, second = pay.enqueue(), pay.options(queue="mail").enqueue()
    drain(app)
    third = die.enqueue()
    with crash_at("execute.before"):
        drain(app)
    drain(app)

    def ids(**chosen: object) -> set[str]:
        return {job.id for job in app.dead_letters(**chosen)}  # type: ignore[arg-type]

    assert ids() == {first.id, second.id, third.id}
    assert ids(queue="mail") == {second.id}
    assert ids(task=die.name) == {third.id}
    assert ids(reason="crashes_exhausted") == {third.id}
    assert len(ids(limit=2)) == 2
    with pytest.raises(ConfigurationError, match="crashes_exhausted"):
        ids(reason="crash_exhausted")


def test_a_job_that_will_be_tried_again_is_no_dead_letter(app: Penstock) -> None:
    @app.task
    def pay() -> None:
        raise ValueError

    pay.enqueue()
    drain(app)
    assert len(app.dead_letters()) == 0
