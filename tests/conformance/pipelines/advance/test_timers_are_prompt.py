"""pipelines/advance/timers: the worker that sets a timer does its work at once, not in the next round."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Penstock, first, wait_for
from penstock.errors import RunFailed

ROUNDS = 3600.0
"""Seconds between two rounds of housekeeping: whatever waited for one would be too late."""
SOON = 40.0


def test_chains_waits_halts_large_expands_and_delays_wait_for_no_round(
    make_app: Callable[..., Penstock],
) -> None:
    app = make_app(housekeeping_interval=ROUNDS, inline_fanout=3)

    @app.task(name="many")
    def many(count: int) -> list[int]:
        return list(range(count))

    @app.task(name="same")
    def same(value: Any) -> Any:
        return value

    @app.task(name="boom", retries=0)
    def boom() -> None:
        raise ValueError("boom")

    @app.pipeline(name="wide")
    def wide() -> Any:
        return same.map(many(10)).collect()

    @app.pipeline(name="waiting")
    def waiting() -> Any:
        return [same(wait_for("never", timeout=0.05, default="by itself")), same.options(delay=0.1)(1)]

    @app.pipeline(name="losing")
    def losing() -> Any:
        return first(same("work"), wait_for("never"))

    @app.pipeline(name="halting")
    def halting() -> Any:
        return [boom(), same.options(delay=3600)(1), wait_for("never")]

    @app.pipeline(name="late", deadline=0.3)
    def late() -> Any:
        return wait_for("never")

    async def main() -> None:
        async with app.worker():
            chained = (await wide.trigger_async()).then(wide)
            assert await chained.result_async(SOON) == list(range(10))
            delayed = await waiting.options(delay=0.1).trigger_async()
            assert await delayed.result_async(SOON) == ["by itself", 1]
            assert await (await losing.trigger_async()).result_async(SOON) == "work"
            for pipeline in (halting, late):
                run = await pipeline.trigger_async()
                following = run.then(wide)
                with pytest.raises(RunFailed):
                    await following.result_async(SOON)
                assert (run.status, following.status) == ("halted", "skipped")

    asyncio.run(main())
