"""pipelines/lifecycle/cancel: Steering from outside: whatever can be done is in the API and on the command line, and
a cancellation always ends.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import penstock
from penstock import Penstock, wait_for
from penstock.cli.main import COMMANDS
from penstock.pipelines.run import Run
from penstock.runtime.worker import Worker
from penstock.testing import drain, travel
from tests.conformance.embedded import beside_a_worker
from tests.waiting import until


def test_every_action_on_a_run_is_in_the_api_for_both_worlds_and_on_the_command_line() -> None:
    actions = {"cancel", "diff", "fork", "pause", "rerun", "resume", "revive", "retry_step", "signal", "then"}
    commands = {command.__name__ for command in COMMANDS}
    for action in actions:
        assert callable(getattr(Run, action))
        assert callable(getattr(Run, f"{action}_async"))
        assert action.removesuffix("_step") in commands


def test_a_cancelled_run_tells_the_handler_that_runs_and_waits_for_it(app: Penstock) -> None:
    began: list[str] = []

    @app.task(name="long")
    async def long() -> None:
        began.append("long")
        try:
            await asyncio.sleep(600)
        finally:
            began.append("told")

    @app.pipeline(name="longing")
    def longing() -> Any:
        return long()

    async def main(_: Worker) -> None:
        run = await longing.trigger_async()
        await until(lambda: began == ["long"])
        assert await run.cancel_async(grace=60) is True
        await until(lambda: run.status == "cancelled")
        assert began == ["long", "told"]
        (step,) = run.steps()
        assert (step.status, step.reason) == ("cancelled", "cancelled")

    beside_a_worker(app, main)


@pytest.mark.parametrize("missed", ["children", "interrupt", "sweep"])
def test_a_cancellation_ends_though_a_child_was_missed_when_it_was_told(app: Penstock, missed: str) -> None:
    """As when a claim or a child is committed just after every worker has looked."""
    seen: list[Any] = []

    @app.pipeline(name="child")
    def child() -> Any:
        return wait_for("never")

    @app.task(name="stubborn")
    def stubborn() -> str:
        run = app.run(str(penstock.current().run_id))
        run.cancel(grace=3600)
        app.database.in_transaction(lambda tx: tx.run("DELETE FROM {timers} WHERE kind = :kind", kind=missed))
        return "too late" if missed != "interrupt" else wait(run)

    def wait(run: Run) -> str:
        with travel(app, 7300):
            while app.engine.chores.turn():
                pass
            seen.append(run.status)
        return "too late"

    @app.pipeline(name="parent")
    def parent() -> Any:
        return [child.options(priority=1)(), stubborn(), wait_for("go")]

    run = parent.trigger()
    drain(app)
    for hours in range(2, 8):
        with travel(app, hours * 3650):
            drain(app)
    (inner,) = app.runs(pipeline="child")
    assert (run.status, inner.status) == ("cancelled", "cancelled")
    assert seen in ([], ["cancelled"])
