"""queue/wakeups: everything that lets a run go on wakes idle workers; see `tests/conformance/wakeups/test_idle.py`."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from penstock import Penstock, wait_for
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conformance.idle_workers import PROMPT, each, soon_calm
from tests.conformance.rows import rows
from tests.waiting import until

AppOn = Callable[..., Penstock]
CALLED = """
SELECT 1 FROM {jobs} j JOIN {job_states} s ON s.job_id = j.id WHERE j.task = 'called' AND s.status = 'succeeded'
"""


def declare(app: Penstock) -> Penstock:
    tries: Counter[str] = Counter()

    @app.task(name="same")
    async def same(value: Any) -> Any:
        return value

    @app.task(name="fragile", retries=0)
    async def fragile() -> str:
        tries["fragile"] += 1
        if tries["fragile"] == 1:
            raise ValueError("once")
        return "mended"

    @app.task(name="called")
    async def called(told: Any) -> None: ...

    @app.pipeline(name="plain")
    def plain(value: int) -> Any:
        return same(same(value))

    @app.pipeline(name="wide", on_complete=called)
    def wide() -> Any:
        return same.map(same([1, 2, 3, 4, 5])).collect()

    @app.pipeline(name="asking")
    def asking() -> Any:
        return same(wait_for("answer"))

    @app.pipeline(name="impatient")
    def impatient() -> Any:
        return [same(wait_for("answer", timeout=0.3, default="late")), same.options(delay=0.3)(1)]

    @app.pipeline(name="bounded", deadline=0.3)
    def bounded() -> Any:
        return wait_for("answer")

    @app.pipeline(name="parent")
    def parent() -> Any:
        return same(plain(3))

    @app.pipeline(name="breaking")
    def breaking() -> Any:
        return same(fragile())

    app.prepare()
    return app


def test_whatever_makes_a_run_go_on_is_told(
    app_on: AppOn, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, consumer = (declare(app_on(postgres_url, inline_fanout=3)) for _ in range(2))
    soon_calm(monkeypatch)
    engine = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"))
    runs: dict[str, Any] = {}

    async def result(name: str, *args: object, **options: Any) -> None:
        await (await client.pipelines[name].options(**options).trigger_async(*args)).result_async(PROMPT)

    async def within(**options: Any) -> None:
        with Session(engine) as session:
            run = client.pipelines["plain"].options(connection=session, **options).trigger(1)
            session.commit()
        await run.result_async(PROMPT)

    async def ask() -> None:
        for name in ("signalled", "paused", "cancelled", "upstream"):
            runs[name] = await client.pipelines["asking"].trigger_async()
        for run in runs.values():
            await until(lambda run=run: any(step.status == "waiting" for step in run.steps()), PROMPT)  # type: ignore[misc]

    async def signal() -> None:
        await runs["signalled"].signal_async("answer", 1)
        assert await runs["signalled"].result_async(PROMPT) == 1

    async def pause() -> None:
        assert await runs["paused"].pause_async()
        await runs["paused"].signal_async("answer", 2)
        await until(lambda: not any(step.status == "waiting" for step in runs["paused"].steps()), PROMPT)

    async def resume() -> None:
        assert await runs["paused"].resume_async()
        assert await runs["paused"].result_async(PROMPT) == 2

    async def cancel() -> None:
        await runs["cancelled"].cancel_async()
        await until(lambda: runs["cancelled"].status == "cancelled", PROMPT)

    async def follow() -> None:
        following = runs["upstream"].then(client.pipelines["plain"], 5)
        await runs["upstream"].signal_async("answer", 3)
        assert await following.result_async(PROMPT) == 5

    async def exceed() -> None:
        run = await client.pipelines["bounded"].trigger_async()
        await until(lambda: run.status == "halted", PROMPT)

    async def halt() -> None:
        runs["broken"] = await client.pipelines["breaking"].trigger_async()
        await until(lambda: runs["broken"].status == "halted", PROMPT)

    async def revive() -> None:
        assert await (await runs["broken"].revive_async()).result_async(PROMPT) == "mended"

    async def call_back() -> None:
        await result("wide")
        await until(lambda: bool(rows(client, CALLED)), PROMPT)

    async def main(worker: Worker) -> None:
        acts = (ask, signal, pause, resume, cancel, follow, exceed, halt, revive, call_back)
        more = (
            partial(result, "parent"),
            partial(result, "impatient"),
            partial(result, "plain", 4, delay=0.3),
        )
        await each(worker, *more, *acts, within, partial(within, delay=0.2))

    beside_a_worker(consumer, main)
    engine.dispose()
