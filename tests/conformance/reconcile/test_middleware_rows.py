"""middleware, runtime/reconcilers/row_visit: Middleware around the handlers of reconcilers, in a worker and in the
hands of tests.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from penstock import Penstock
from penstock.middleware import HandlerCall
from penstock.reconcile.events import RowSettled
from penstock.telemetry import logs
from penstock.testing import drain
from tests.conformance.reconcile.cloud import Cloud, Volume
from tests.waiting import until

WHO: ContextVar[str] = ContextVar("who", default="")


@pytest.mark.parametrize("is_async", [True, False], ids=["loop", "thread"])
@pytest.mark.parametrize("in_worker", [True, False], ids=["worker", "drain"])
def test_around_row_handlers(app: Penstock, cloud: Cloud, is_async: bool, in_worker: bool) -> None:
    seen: list[tuple[str, str, Any, Any]] = []
    settled: list[RowSettled] = []
    app.events.on(RowSettled, settled.append)

    @app.middleware
    def outer(call: HandlerCall) -> Iterator[None]:
        WHO.set(f"{call.task} {call.id}")
        try:
            yield
        finally:
            seen.append((call.task, call.id, call.result, type(call.error)))

    async def inner(call: HandlerCall) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        if call.item.id == 3:
            raise PermissionError("not this one")
        yield

    async def visit_async(item: Any) -> dict[str, Any]:
        return visit(item)

    def visit(item: Any) -> dict[str, Any]:
        assert WHO.get() == f"visit {item.id}"
        if item.id == 2:
            raise ValueError("no")
        return {"status": "active"}

    declare = app.reconciler(Volume, where=Volume.status == "submitted", name="visit", middleware=[inner])
    declare(visit_async if is_async else visit)
    cloud.add(Volume, {"id": 1}, {"id": 2}, {"id": 3})

    async def work() -> None:
        async with app.worker():
            await until(lambda: len(settled) >= 3)

    asyncio.run(work()) if in_worker else drain(app)
    found = {event.row: event for event in settled}
    assert {row: event.outcome for row, event in found.items()} == {
        "1": "applied",
        "2": "errored",
        "3": "errored",
    }
    assert sorted(seen, key=lambda each: each[1]) == [
        ("visit", "1", {"status": "active"}, type(None)),
        ("visit", "2", None, ValueError),
        ("visit", "3", None, PermissionError),
    ]
    assert cloud.get(Volume, 1).status == "active"
    assert 'raise ValueError("no")' in (found["2"].traceback or "")
    assert (found["1"].traceback, found["2"].error_type) == (None, "ValueError")


def test_a_row_that_fails_is_logged_with_its_traceback(
    app: Penstock, cloud: Cloud, caplog: pytest.LogCaptureFixture
) -> None:
    @app.reconciler(Volume, where=Volume.status == "submitted", name="visit")
    def visit(item: Any) -> None:
        raise ValueError("card declined")

    cloud.add(Volume, {"id": 1})
    with caplog.at_level(logging.DEBUG, "penstock"):
        stop = logs.attach(app.events)
        drain(app)
        stop()
    (record,) = [record for record in caplog.records if "card declined" in record.getMessage()]
    assert record.levelno == logging.WARNING
    assert 'raise ValueError("card declined")' in (record.exc_text or "")
