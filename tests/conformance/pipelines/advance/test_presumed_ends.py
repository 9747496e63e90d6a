"""pipelines/advance/finish: the end of a run is presumed to be the usual one. Every other end is found, and counts."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock
from penstock.pipelines.advance import finish
from penstock.pipelines.run import Run
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import count
from tests.waiting import until


class Ends:
    """Pipelines whose last step waits until it is told to go on; and how often an end was presumed."""

    def __init__(self, app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
        self.app = app
        self.presumed: list[int] = []
        self.told: list[str] = []
        self.started, self.go_on = asyncio.Event(), asyncio.Event()
        succeed = finish.succeed

        def spy(tx: Any, ids: Any) -> None:
            self.presumed.append(len(ids))
            succeed(tx, ids)

        monkeypatch.setattr("penstock.pipelines.advance.finish.succeed", spy)

        @app.task
        async def last(number: int) -> int:
            self.started.set()
            await self.go_on.wait()
            return number + 1

        @app.task
        async def tell(status: str) -> None:
            self.told.append(status)

        @app.task(retries=0)
        async def fail(number: int) -> int:
            raise LookupError(number)

        self.notify, self.fail, self.last = tell, fail, last
        self.one = app.flow("one").start(last).on_complete(tell)

    async def meanwhile(self, happens: Callable[[Run], object]) -> Run:
        run: Run = await self.one.trigger_async(1)
        await self.started.wait()
        await asyncio.to_thread(happens, run)
        self.go_on.set()
        return run

    @property
    def tries(self) -> int:
        """How many ends are presumed where one is to be seen: none where nothing is presumed."""
        return 1 if self.app.database.dialect.fast_path.presume else 0


@pytest.fixture
def ends(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> Ends:
    return Ends(app, monkeypatch)


def test_a_usual_end_is_presumed(app: Penstock, ends: Ends) -> None:
    async def live(_worker: Worker) -> None:
        run = await ends.meanwhile(lambda _: None)
        assert await run.result_async(timeout=30) == 2
        await until(lambda: bool(ends.told))

    beside_a_worker(app, live)
    assert ends.told == ["succeeded"]
    assert len(ends.presumed) == ends.tries


def test_a_run_that_came_to_follow_it_meanwhile_is_started(app: Penstock, ends: Ends) -> None:
    async def live(_worker: Worker) -> None:
        followers: list[Any] = []
        after = app.flow("after").start(ends.last)
        run = await ends.meanwhile(lambda run: followers.append(run.then(after, 5)))
        assert await run.result_async(timeout=30) == 2
        assert await followers[0].result_async(timeout=30) == 6
        await until(lambda: bool(ends.told))

    beside_a_worker(app, live)
    assert ends.told == ["succeeded"], "once, although its end was written twice"
    assert count(app, "executions") == 3


def test_paused_when_its_last_step_ends(app: Penstock, ends: Ends) -> None:
    async def live(_worker: Worker) -> None:
        run = await ends.meanwhile(lambda run: run.pause())
        assert await run.result_async(timeout=30) == 2
        await until(lambda: bool(ends.told))

    beside_a_worker(app, live)
    assert ends.told == ["succeeded"]


def test_cancelled_when_its_last_step_ends(app: Penstock, ends: Ends) -> None:
    async def live(_worker: Worker) -> None:
        run = await ends.meanwhile(lambda run: run.cancel())
        await until(lambda: run.status == "cancelled")
        await until(lambda: bool(ends.told))

    beside_a_worker(app, live)
    assert ends.told == ["cancelled"]


def test_a_run_that_has_gone_wrong_before_does_not_succeed(app: Penstock, ends: Ends) -> None:
    @app.pipeline(on_failure="continue", on_complete=ends.notify)
    def both(number: int) -> Any:
        ends.fail(number)  # type: ignore[unused-coroutine]  # it is a step here
        return ends.last(number)

    async def live(_worker: Worker) -> None:
        run = await both.trigger_async(1)
        await until(lambda: any(step.status == "failed" for step in run.steps()))
        ends.go_on.set()
        await until(lambda: run.status == "failed")
        await until(lambda: bool(ends.told))

    beside_a_worker(app, live)
    assert ends.told == ["failed"]


def test_the_step_that_a_child_run_is_ends_with_it(app: Penstock, ends: Ends) -> None:
    parent = app.flow("parent").start(ends.one)

    async def live(_worker: Worker) -> None:
        run = await parent.trigger_async(1)
        await ends.started.wait()
        ends.go_on.set()
        assert await run.result_async(timeout=30) == 2

    beside_a_worker(app, live)
    assert ends.presumed.count(1) <= ends.tries, "the parent's at the most: a child is known to be one"
