"""testing/drain: Jobs of which no work can be made: drain settles them as a worker does, and goes on with the
others.
"""

import asyncio
from collections.abc import Callable

import pytest

from penstock import Penstock, Retry
from penstock.job import Job
from penstock.testing import drain, drain_async, inline, travel
from tests.conformance.rows import count, state


def drained_async(app: Penstock, limit: int | None = None) -> int:
    return asyncio.run(drain_async(app, limit=limit))


EITHER = pytest.mark.parametrize("run", [drain, drained_async])
Run = Callable[..., int]


def change(app: Penstock, job: Job[str], **columns: str) -> None:
    sets = ", ".join(f"{name} = :{name}" for name in columns)
    app.database.in_transaction(
        lambda tx: tx.run(f"UPDATE {{jobs}} SET {sets} WHERE id = :id", **columns, id=job.id)
    )


@EITHER
@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("options", '{"executor":"rocket"}', "there is no executor 'rocket'"),
        ("options", "[]", "AttributeError"),
        ("payload", '{"zork":1}', "zork"),
        ("payload", '"nonsense"', ""),
    ],
)
def test_it_is_the_error_of_its_job_only(
    app: Penstock, run: Run, column: str, value: str, error: str
) -> None:
    @app.task(name="note", retries=0)
    def note(word: str) -> str:
        return word

    jobs = note.enqueue_many([("a",), ("b",), ("c",)])
    change(app, jobs[1], **{column: value})
    assert run(app) == 3
    assert [job.status for job in jobs] == ["succeeded", "failed", "succeeded"]
    (attempt,) = jobs[1].attempts()
    assert attempt.outcome == "errored"
    assert error in str(attempt.error)
    assert count(app, "claims") == 0


@EITHER
def test_it_is_tried_again_by_the_policy_of_its_task(app: Penstock, run: Run) -> None:
    @app.task(name="note", retries=Retry(max=1, delay=10, jitter=0))
    def note(word: str) -> str:
        return word

    job = note.enqueue("a")
    change(app, job, options='{"executor":"rocket"}')
    assert run(app) == 1
    assert (job.status, state(app, job.id)["retry_count"]) == ("scheduled", 1)
    with travel(app, 11):
        assert run(app) == 1
    assert job.status == "failed"


@EITHER
def test_each_counts_towards_the_limit(app: Penstock, run: Run) -> None:
    @app.task(name="note", retries=0)
    def note(word: str) -> str:
        return word

    jobs = note.enqueue_many([("a",), ("b",), ("c",)])
    for job in jobs:
        change(app, job, options='{"executor":"rocket"}')
    assert run(app, limit=2) == 2
    assert sorted(job.status for job in jobs) == ["available", "failed", "failed"]


def test_an_inline_enqueue_does_not_raise_for_another_job(app: Penstock) -> None:
    @app.task(name="note", retries=0)
    def note(word: str) -> str:
        return word

    old = note.enqueue("a")
    change(app, old, options='{"executor":"rocket"}')
    with inline(app):
        assert note.enqueue("b").result(0) == "b"
    assert old.status == "failed"
