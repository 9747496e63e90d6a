"""Whatever a listener of events, a filter of the log or an `on_lost` raises: the worker and all innocents go on."""

import asyncio
import logging
import threading
from collections.abc import Callable
from itertools import cycle
from typing import Any, NoReturn

import pytest
from sqlalchemy import insert, text

from penstock import Penstock
from penstock.runtime.worker import Worker
from penstock.telemetry.events import Event, PlaceFreed
from tests.conformance.embedded import beside_a_worker
from tests.fuzz.innocents import Crowd, Thing
from tests.waiting import until

QUICK = {"reap_after": 2, "heartbeat_interval": 0.4, "housekeeping_interval": 0.2}
KINDS = (SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, StopIteration, ValueError)


class Listener:
    """Raises at every event, each time something else."""

    def __init__(self) -> None:
        self.kinds = cycle(KINDS)
        self.raised: set[type[BaseException]] = set()

    def __call__(self, event: Event) -> None:
        kind = next(self.kinds)
        in_main = threading.current_thread() is threading.main_thread()
        if isinstance(event, PlaceFreed) or (kind is KeyboardInterrupt and in_main):
            return  # there it is Ctrl-C, which ends the program
        self.raised.add(kind)
        raise kind("hostile")


class Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> NoReturn:
        raise ValueError("hostile")


@pytest.mark.parametrize("filtered", [False, True])
def test_a_listener_stops_nothing(
    make_app: Callable[..., Penstock], filtered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does a filter that raises when the listener's error is to be logged."""
    app = make_app(**QUICK)
    crowd, listener, hostile = Crowd(app), Listener(), Filter()
    freed: list[Event] = []
    app.events.on(PlaceFreed, freed.append)
    app.events.on(Event, listener)
    caplog.set_level(logging.CRITICAL)
    log = logging.getLogger("penstock")
    if filtered:
        caplog.set_level(logging.ERROR)
        log.addFilter(hostile)
    try:
        _come_through(app, crowd)
    finally:
        log.removeFilter(hostile)
    assert not freed, "no place had to be freed by its watcher"
    assert listener.raised == set(KINDS)


def _come_through(app: Penstock, crowd: Crowd) -> None:
    died: list[threading.ExceptHookArgs] = []

    async def main(worker: Worker) -> None:
        threads = [service.thread for service in worker.services]
        await crowd.come_through(1)
        failed = await crowd.fails.enqueue_async()
        await until(lambda: failed.status == "failed")
        await until(lambda: worker.dispatcher.busy == 0 and worker.dispatcher.overdue == 0)
        assert [service.thread for service in worker.services] == threads, "none had to be started anew"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", died.append)
        beside_a_worker(app, main)
    assert not died


def test_an_on_lost_stops_nothing(
    make_app: Callable[..., Penstock], caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(**QUICK)
    crowd = Crowd(app)
    called: list[int] = []

    def lost(item: Any, values: Any) -> None:
        called.append(item.id)
        raise KINDS[item.id % len(KINDS)]("hostile")

    async def lost_async(item: Any, values: Any) -> None:
        lost(item, values)

    def stolen(item: Any) -> dict[str, object]:
        with app.database.engine.begin() as connection:
            stolen = "UPDATE fuzz_things SET lock_token = 4711, status = 'gone' WHERE id = :id"
            connection.execute(text(stolen), {"id": item.id})
        return {"status": "done"}

    for name, hook in (("sync", lost), ("async", lost_async)):
        app.reconciler(Thing, name=name, where=Thing.status == name, on_lost=hook)(stolen)
    caplog.set_level(logging.CRITICAL)
    things = [
        {"id": 60 + number, "status": ("sync", "async")[number % 2]} for number in range(2 * len(KINDS))
    ]

    async def main(worker: Worker) -> None:
        with app.database.engine.begin() as connection:
            connection.execute(insert(Thing), things)
        await until(lambda: sorted(called) == [thing["id"] for thing in things])
        await crowd.come_through(1)

    beside_a_worker(app, main)
