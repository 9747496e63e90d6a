"""Whatever a handler raises or returns: its job gets an end, its place is free, and innocents of every kind go on."""

import asyncio
import importlib
import json
import logging
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import pytest
from hypothesis import strategies as st
from sqlalchemy import insert, select

from penstock.runtime.worker import Worker
from penstock.telemetry.events import PlaceFreed
from tests.conformance.embedded import beside_a_worker
from tests.fuzz.drawing import cases, drawn
from tests.fuzz.hostile import KNOWN, Case
from tests.waiting import eventually

MODULE = "tests.fuzz.hostile_shop"
FRESH = 12
"""Cases a batch."""
RUNS = 3
"""Of a batch, so many are also steps of runs, whose context and callbacks meet them."""
ENDS = ("succeeded", "failed", "cancelled", "halted")
EXECUTORS = ("in_thread", "on_loop", "in_process")


@pytest.fixture
def shop(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("PENSTOCK_TEST_SHOP_URL", database_url)
    sys.modules.pop(MODULE, None)
    shop = importlib.import_module(MODULE)
    shop.app.prepare()
    assert not shop.app.schedules(limit=1)  # imported now: CPython 3.11 fails if two threads parse at once
    shop.Base.metadata.create_all(shop.app.database.engine)
    yield shop
    shop.app.close()
    sys.modules.pop(MODULE, None)


class Trial:
    """Batches of hostile work, given to one worker."""

    def __init__(self, shop: Any, worker: Worker) -> None:
        self.shop = shop
        self.worker = worker
        self.rows = 0

    def hold(self, batch: list[tuple[str, Case, str]]) -> None:
        jobs = [
            (f"{how}, {where}", case, getattr(self.shop, how).enqueue(json.dumps(case), where))
            for how, case, where in batch
        ]
        jobs += [("a run", case, self.shop.told.trigger(json.dumps(case))) for _, case, _ in batch[:RUNS]]
        for number, (_, case, _) in enumerate(batch):
            self._row(("loop", "thread", "process")[number % 3], json.dumps(case))
        self.innocents()
        self._check_ends(jobs)
        crews: list[Any] = [
            self.worker.dispatcher,
            *(runner.dispatcher for runner in self.worker.rows.runners.values()),
        ]
        eventually(lambda: not any(crew.busy or crew.overdue for crew in crews))

    def _check_ends(self, jobs: list[tuple[str, Case, Any]]) -> None:
        """Also a job that sleeps is out of its worker's hands."""

        def left() -> list[tuple[str, Case, str]]:
            return [
                (how, case, job.status)
                for how, case, job in jobs
                if job.status not in ENDS
                and not (how != "a run" and job.status == "scheduled" and job.attempts())
            ]

        try:
            eventually(lambda: not left())
        except AssertionError:
            raise AssertionError(f"without an end: {left()}") from None

    def _row(self, way: str, story: str | None = None) -> None:
        self.rows += 1
        with self.shop.app.database.engine.begin() as connection:
            connection.execute(insert(self.shop.Row), [{"id": self.rows, "way": way, "story": story}])

    def innocents(self) -> None:
        shop = self.shop
        jobs = [
            shop.double.enqueue(4),
            shop.thread_double.enqueue(4),
            shop.process_double.enqueue(4),
            shop.limited_double.enqueue(4),
            shop.double.options(delay=0.1).enqueue(4),
        ]
        run = shop.sum_of_doubles.trigger(3)
        schedule = shop.app.schedules.create(shop.double, every=0.2, name=f"after {self.rows}", args=(4,))
        self._row("thread")
        self._row("loop")
        self._row("process")
        assert [job.result(timeout=30) for job in jobs] == [8] * 5
        assert run.result(timeout=30) == 6
        eventually(lambda: not self._left_undone())
        eventually(lambda: any(tick.outcome == "fired" for tick in schedule.ticks(limit=10)))
        assert schedule.ticks(limit=1)[0].job.result(timeout=30) == 8
        schedule.delete()

    def _left_undone(self) -> list[int]:
        row = self.shop.Row
        with self.shop.app.database.engine.begin() as connection:
            query = select(row.id).where(row.story.is_(None), row.done == 0)
            return list(connection.execute(query).scalars())


def beside(shop: Any, work: Callable[[Worker], None]) -> None:
    async def main(worker: Worker) -> None:
        await asyncio.to_thread(work, worker)

    beside_a_worker(shop.app, main)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::RuntimeWarning", "ignore::DeprecationWarning")
def test_no_outcome_of_a_handler_takes_its_place_for_good(
    shop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    freed: list[PlaceFreed] = []
    shop.app.events.on(PlaceFreed, freed.append)
    died: list[threading.ExceptHookArgs] = []
    caplog.set_level(logging.CRITICAL)

    places = st.sampled_from(shop.PLACES)
    known = [(case, "handler") for case in KNOWN]
    batches = [
        [(how, case, where) for how, (case, where) in zip(cycle(EXECUTORS), each)]
        for each in (known, *(drawn(st.tuples(cases(), places), FRESH) for _ in range(2)))
    ]

    def work(worker: Worker) -> None:
        trial = Trial(shop, worker)
        for batch in batches:
            trial.hold(batch)
        killed = shop.die.enqueue()
        trial.innocents()
        eventually(lambda: killed.status == "failed")
        assert [attempt.outcome for attempt in killed.attempts()] == ["crashed"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", died.append)
        beside(shop, work)
    assert not died, "no thread has ended by it"
    assert not freed, "and no place had to be freed by its watcher"
