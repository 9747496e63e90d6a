"""task, queue/enqueue: `enqueue_many`: one batch, all or none, of any size."""

import asyncio

import pytest

from penstock import Penstock
from penstock.errors import ArgumentError
from penstock.telemetry import fault_points
from penstock.telemetry.events import JobsEnqueued
from penstock.testing import crash_at, drain
from tests.conformance.rows import count, counts


def test_each_call_becomes_a_job_in_order(app: Penstock) -> None:
    ran: list[tuple[int, int]] = []

    @app.task
    def note(a: int, b: int = 0) -> None:
        ran.append((a, b))

    jobs = note.enqueue_many([(1,), (2, 3), {"a": 4, "b": 5}, [6]])
    assert [job.status for job in jobs] == ["available"] * 4
    assert drain(app) == 4
    assert ran == [(1, 0), (2, 3), (4, 5), (6, 0)]


def test_it_takes_a_generator_and_nothing(app: Penstock) -> None:
    @app.task
    def note(a: int) -> int:
        return a

    assert len(note.enqueue_many((n,) for n in range(3))) == 3
    assert note.enqueue_many([]) == []
    assert drain(app) == 3


def test_the_async_door(app: Penstock) -> None:
    @app.task
    def note(a: int) -> int:
        return a

    jobs = asyncio.run(note.enqueue_many_async([(1,), (2,)]))
    drain(app)
    assert [job.result(timeout=0) for job in jobs] == [1, 2]


def test_options_hold_for_all(app: Penstock) -> None:
    @app.task
    def note(a: int) -> int:
        return a

    jobs = note.options(queue="mail", delay=5).enqueue_many([(1,), (2,)])
    assert {job.status for job in jobs} == {"scheduled"}
    assert count(app, "scheduled") == 2


def _statements(app: Penstock, calls: int) -> int:
    seen: list[str] = []

    @app.task(name=f"note{calls}")
    def note(a: int) -> int:
        return a

    app.prepare()
    with fault_points.watching(seen.append):
        note.enqueue_many([(n,) for n in range(calls)])
    return len([point for point in seen if point.startswith("enqueue.") and point[-1].isdigit()])


def test_the_number_of_statements_does_not_grow_with_the_number_of_jobs(app: Penstock) -> None:
    assert _statements(app, 2) == _statements(app, 100)


def test_one_event_for_all(app: Penstock) -> None:
    @app.task
    def note(a: int) -> int:
        return a

    seen: list[JobsEnqueued] = []
    app.events.on(JobsEnqueued, seen.append)
    note.options(queue="mail").enqueue_many([(1,), (2,)])
    assert seen == [JobsEnqueued(note.name, "mail", 2)]


def test_one_wrong_call_and_none_is_written(app: Penstock) -> None:
    @app.task
    def note(a: int) -> int:
        return a

    app.prepare()
    for calls in ([(1,), ("two",)], [(1,), (1, 2)], [(1,), 2], [(1,), "2"], [(1,), {"b": 2}]):
        with pytest.raises(ArgumentError, match="note"):
            note.enqueue_many(calls)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="one key cannot name many jobs"):
        note.options(key="x").enqueue_many([(1,)])
    assert count(app, "jobs") == 0


def test_a_wrong_call_far_behind_leaves_nothing_in_anybodys_transaction(app: Penstock) -> None:
    @app.task
    def note(a: int) -> int:
        return a

    app.prepare()
    calls: list[tuple[object]] = [(n,) for n in range(4500)]
    calls[-1] = ("the database is locked",)
    with pytest.raises(ArgumentError, match="note"):
        note.enqueue_many(calls)
    assert count(app, "jobs") == 0
    with app.database.engine.begin() as connection:
        with pytest.raises(ArgumentError, match="note"):
            note.options(connection=connection).enqueue_many(calls)
        note.options(connection=connection).enqueue_many([(1,)])
    assert (count(app, "jobs"), count(app, "availabilities")) == (1, 1)


@pytest.mark.parametrize("point", ["enqueue.1", "enqueue.commit"])
def test_a_producer_that_dies_leaves_all_or_none(app: Penstock, point: str) -> None:
    @app.task
    def note(a: int) -> int:
        return a

    app.prepare()
    with crash_at(point) as crash:
        note.enqueue_many([(n,) for n in range(1200)])
    assert crash.crashed
    assert (count(app, "jobs"), count(app, "job_states"), count(app, "availabilities")) == (0, 0, 0)
    with crash_at("enqueue.committed"):
        note.enqueue_many([(n,) for n in range(1200)])
    assert (count(app, "jobs"), count(app, "job_states"), count(app, "availabilities")) == (1200, 1200, 1200)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_hundred_thousand_jobs_are_no_problem(app: Penstock) -> None:
    @app.task
    def note(a: int) -> int:
        return a

    jobs = note.enqueue_many([(n,) for n in range(100_000)])
    assert len({job.id for job in jobs}) == 100_000
    assert counts(app) | {"processes": 0} == {
        "jobs": 100_000,
        "job_states": 100_000,
        "availabilities": 100_000,
        "scheduled": 0,
        "claims": 0,
        "executions": 0,
        "job_keys": 0,
        "processes": 0,
    }
    assert drain(app, limit=3) == 3
    assert [job.result(timeout=0) for job in jobs[:3]] == [0, 1, 2]
