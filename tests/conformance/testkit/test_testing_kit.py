"""testing: the users' test kit itself."""

import asyncio
import sys
from datetime import timedelta
from typing import Any

import pytest

import penstock
from penstock import Penstock, Retry
from penstock.errors import ConfigurationError, PenstockError
from penstock.testing import crash_at, drain, drain_async, inline, travel
from tests.conformance.rows import count, counts, rows


def test_drain_runs_what_jobs_enqueue_and_counts_attempts(app: Penstock) -> None:
    @app.task
    def down(number: int) -> None:
        if number:
            down.enqueue(number - 1)

    down.enqueue(4)
    assert drain(app) == 5
    assert drain(app) == 0
    assert counts(app)["processes"] == 0


def test_drain_stops_at_its_limit_and_keeps_the_rest(app: Penstock) -> None:
    ran: list[int] = []

    @app.task
    def note(number: int) -> None:
        ran.append(number)

    note.enqueue_many([(n,) for n in range(5)])
    assert drain(app, limit=2) == 2
    assert ran == [0, 1]
    assert (count(app, "availabilities"), count(app, "claims")) == (3, 0)
    assert drain(app, limit=0) == 0
    assert drain(app) == 3


def test_drain_has_the_same_order_every_time(app: Penstock) -> None:
    ran: list[str] = []

    @app.task
    def note(queue: str) -> None:
        ran.append(queue)

    queues = ["d", "a", "c", "b"] * 3
    for queue in queues:
        note.options(queue=queue).enqueue(queue)
    drain(app)
    assert ran == sorted(queues)


def test_drain_runs_here_and_now(app: Penstock) -> None:
    frames: list[str] = []
    here = "local to this test"

    @app.task
    def note() -> None:
        frames.append(here)

    @app.task
    async def note_async() -> None:
        await asyncio.sleep(0)
        frames.append(here)

    note.enqueue()
    note_async.enqueue()
    drain(app)
    assert frames == [here, here]


def test_an_interrupt_ends_the_drain_and_is_no_error_of_the_job(app: Penstock) -> None:
    pressed = [True]

    @app.task(retries=0)
    def note() -> None:
        if pressed.pop():
            raise KeyboardInterrupt

    job = note.enqueue()
    with pytest.raises(KeyboardInterrupt):
        drain(app)
    pressed.append(False)
    assert drain(app) == 1
    assert [attempt.outcome for attempt in job.attempts()] == ["crashed", "succeeded"]


def test_what_a_task_of_a_handler_raises_to_end_the_program_is_recorded_too(app: Penstock) -> None:
    async def leave() -> None:
        sys.exit(3)

    @app.task(retries=0)
    async def note() -> None:
        await asyncio.gather(leave())

    job = note.enqueue()
    assert drain(app) == 1
    assert "SystemExit: 3" in str(job.attempts()[0].error)


def test_inside_a_loop_drain_points_to_its_twin(app: Penstock) -> None:
    async def main() -> None:
        with pytest.raises(PenstockError, match="await drain_async"):
            drain(app)

    asyncio.run(main())


def test_drain_async_runs_handlers_on_the_callers_loop(app: Penstock) -> None:
    loops: list[object] = []

    @app.task
    async def note() -> int:
        loops.append(asyncio.get_running_loop())
        return penstock.current().attempt

    @app.task
    def in_thread() -> int:
        return asyncio.run(_one())

    async def main() -> None:
        job, other = await note.enqueue_async(), await in_thread.enqueue_async()
        assert await drain_async(app) == 2
        assert loops == [asyncio.get_running_loop()]
        assert (await job.result_async(timeout=0), await other.result_async(timeout=0)) == (1, 1)
        with pytest.raises(PenstockError):
            penstock.current()
        with crash_at("execute.after") as crash:
            await note.enqueue_async()
            await drain_async(app)
        assert crash.crashed
        assert await drain_async(app, limit=5) == 1

    asyncio.run(main())
    assert counts(app)["processes"] == 0


async def _one() -> int:
    return 1


def test_inline_runs_before_enqueue_returns(app: Penstock) -> None:
    ran: list[str] = []

    @app.task
    def inner(text: str) -> None:
        ran.append(text)

    @app.task
    def outer() -> str:
        inner.enqueue("inner")
        ran.append("outer")
        return "done"

    with inline(app):
        job = outer.enqueue()
        assert ran == ["inner", "outer"]
        assert job.result(timeout=0) == "done"
        inner.enqueue_many([("a",), ("b",)])
    assert ran[2:] == ["a", "b"]
    later = inner.enqueue("later")
    assert later.status == "available"


def test_inline_nests_to_any_depth_from_coroutines_too(app: Penstock) -> None:
    @app.task
    async def down(number: int) -> int:
        if number:
            job = await down.enqueue_async(number - 1)
            return 1 + await job.result_async(timeout=0)
        return 0

    @app.task
    async def blocking(number: int) -> int:
        return 1 + down.enqueue(number).result(timeout=0)

    with inline(app):
        assert down.enqueue(12).result(timeout=0) == 12
        assert asyncio.run(_awaited(down, 3)) == 3
        assert blocking.enqueue(2).result(timeout=0) == 3


async def _awaited(task: Any, number: int) -> Any:
    return await (await task.enqueue_async(number)).result_async(timeout=0)


def test_inline_records_errors_and_leaves_retries_for_later(app: Penstock) -> None:
    @app.task(retries=Retry(max=1, delay=60))
    def fail() -> None:
        raise ValueError

    with inline(app):
        job = fail.enqueue()
        assert job.status == "scheduled"
        delayed = fail.options(delay=10).enqueue()
        assert delayed.status == "scheduled"
    with travel(app, 120):
        assert drain(app) == 2
    assert job.status == "failed"


def test_journeys_add_up_and_end(app: Penstock) -> None:
    app.prepare()

    def now() -> int:
        return int(rows(app, "SELECT {now}")[0][0]) // 1_000_000

    start = now()
    with travel(app, 1000):
        assert 1000 <= now() - start < 1100
        with travel(app, timedelta(seconds=500)) as nested:
            assert 1500 <= now() - start < 1600
            nested.back()
            nested.back()
            assert 1000 <= now() - start < 1100
    assert now() - start < 100
    journey = travel(app, -3600)
    assert now() - start < -3500
    journey.back()
    assert 0 <= now() - start < 100


def test_only_this_app_travels(app: Penstock, make_app: Any) -> None:
    other = make_app()

    @app.task(name="note")
    def note() -> None: ...

    @other.task(name="note")
    def there() -> None: ...

    note.options(delay=60).enqueue()
    with travel(app, 100):
        assert drain(other) == 0
        assert drain(app) == 1


def test_a_crash_that_did_not_happen_says_so(app: Penstock) -> None:
    @app.task
    def note() -> None: ...

    note.enqueue()
    with crash_at("execute.after", visit=2) as crash:
        assert drain(app) == 1
    assert not crash.crashed
    with pytest.raises(ZeroDivisionError), crash_at("execute.after"):
        _ = 1 / 0


@pytest.mark.parametrize("point", ["execute.affter", "setle.commit", "nonsense", "claim", "claim.x", ""])
def test_a_point_that_does_not_exist_is_refused(point: str) -> None:
    with pytest.raises(ConfigurationError, match="there is no point"):
        crash_at(point)


def test_the_nearest_point_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"Did you mean 'settle\.commit'"):
        crash_at("setle.commit")
    with pytest.raises(ConfigurationError, match="visit=0"):
        crash_at("settle.commit", visit=0)


def test_drain_takes_what_has_become_due_by_its_priority(app: Penstock) -> None:
    order: list[str] = []
    note = app.task(name="note")(order.append)
    note.options(priority=7, delay=1).enqueue("high")
    note.enqueue_many([("low",)] * 2)
    with travel(app, 2):
        assert drain(app) == 3
    assert order == ["high", "low", "low"], "as a worker takes them"
