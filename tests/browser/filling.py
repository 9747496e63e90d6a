"""Fills the application once: jobs of the last hours, failures, runs in every state, rows, acts of people."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from penstock.operate.overview import claimed_ids
from penstock.operate.pages.limits import limit_keys
from penstock.operate.pages.run_steps import relatives
from penstock.operate.processes import list_processes
from penstock.testing import drain, travel
from tests.plans.scenes import Batches
from tests.waiting import eventually
from tests.workers import workers

HOURS = 3
ROUNDS = 12
"""So often within these hours a worker works."""
HOSTILE = (
    "<script>alert('x')</script><img src=x onerror=alert(1)> \u202egnp.exe\u202c &amp; \x07\x1b[31m {{7*7}}"
)
"""Markup, right-to-left text, control characters and a template's braces."""
ELEMENTS = 500


@dataclass(frozen=True, slots=True)
class Filled:
    """Ids of what tests look for."""

    job: str
    failed_job: str
    hostile_job: str
    waiting_job: str
    large_run: str
    """Of 500 elements, with failures among them."""
    waiting_run: str
    """Its child has ended, and it waits for a signal."""
    halted_run: str
    good_run: str
    paused_run: str
    large_job: str
    """Its argument has a megabyte."""
    child_run: str
    """Of the run that waits."""
    limit: str
    """A key of a limit that jobs wait for."""
    version: str
    """A stored definition of transcode."""
    element: str = "3"
    """The path of an element of the large run."""


def fill(shop: ModuleType, rounds: int = ROUNDS, elements: int = ELEMENTS) -> Filled:
    """Everything that a page can show, on a database with the schema and nothing else."""
    app = shop.app
    shop.Base.metadata.create_all(app.database.engine)
    _past(shop, rounds)
    filled = _present(shop, elements)
    _people(shop, filled)
    return filled


@contextmanager
def staffed(shop: ModuleType, url: str, folder: Path) -> Iterator[str]:
    """A supervisor and two workers that are at work on a film; the id of one of their processes."""
    app = shop.app
    shop.encode.enqueue_many([("feature.mov", 36_000.0), ("trailer.mov", 36_000.0)])
    with workers(folder, url, print) as start:
        start("--queues", "films", "--processes", "2", target="tests.browser.shop:app")
        eventually(lambda: len(app.database.read(claimed_ids)) == 2)
        yield next(row.id for row in app.database.read(list_processes) if row.supervisor_id)


def crash(shop: ModuleType, url: str, folder: Path) -> str:
    """The id of a run one of whose steps has killed its worker twice before it went well."""
    run = shop.colouring.trigger("feature.mov")
    with workers(folder, url, print) as start:
        start("--queues", "lab", "--processes", "1", target="tests.browser.shop:app")
        eventually(lambda: str(run.status) == "succeeded")
    return str(run.id)


def _past(shop: ModuleType, rounds: int) -> None:
    app = shop.app
    with travel(app, -HOURS * 3600):
        app.declare_schedules()
        for turn in range(rounds):
            shop.send_receipt.enqueue_many([(number,) for number in range(20 + 5 * (turn % 4))])
            shop.charge.enqueue_many([(f"acct-{n % 9}", 100 * turn + n) for n in range(1, 15)])
            shop.render.enqueue_many([("eu",), ("us",)])
            shop.transcode.trigger("broken.mov" if turn % 4 == 3 else f"film-{turn}.mov")
            if turn % 3 == 0:
                shop.fulfil.trigger(12)
            drain(app)
            travel(app, HOURS * 3600 / rounds)
        travel(app, -HOURS * 3600)


def _present(shop: ModuleType, elements: int) -> Filled:
    app = shop.app
    job = shop.send_receipt.options(key="order:9182").enqueue(9182, address="ann@example.com")
    failed = shop.charge.enqueue("acct-3", 770)
    hostile = shop.echo.enqueue(HOSTILE)
    large = shop.echo.enqueue("x" * 900_000)
    shop.poll.enqueue_many([("catalogue",), ("prices",)])
    shop.settle.enqueue_many([(f"acct-{n}",) for n in range(8)])
    shop.label.enqueue(shop.Address("1 Rose Street", "Leeds"), copies=2)
    large_run = shop.fulfil.options(key="2026-10").trigger(elements)
    waiting_run = shop.month_end.options(key="2026-11").trigger(8)
    halted = shop.transcode.trigger("broken-trailer.mov")
    good = shop.transcode.trigger("holiday.mov")
    _work_off(app)
    with app.database.engine.begin() as connection:
        names = [{"name": f"data-{n}"} for n in range(4)] + [{"name": f"broken-{n}"} for n in range(3)]
        connection.execute(shop.Volume.__table__.insert(), names)
    drain(app)
    paused = shop.transcode.trigger("later.mov")
    with app.acting(by="ann", why="the store is full"):
        paused.pause()
    waiting = shop.encode.options(delay=5400, priority=10).enqueue("feature.mov")
    shop.charge.enqueue_many([("acct-1", 100 + n) for n in range(6)])
    return Filled(
        job.id,
        failed.id,
        hostile.id,
        waiting.id,
        large_run.id,
        waiting_run.id,
        halted.id,
        good.id,
        paused.id,
        large.id,
        app.database.read(relatives, waiting_run.id, 1).children[0].id,
        app.database.read(limit_keys)[0].key,
        shop.transcode.definition.hash,
    )


def _people(shop: ModuleType, filled: Filled) -> None:
    app = shop.app
    with app.acting(by="ann", why="the bank was down"):
        for letter in list(app.dead_letters(task="bank.charge"))[-2:]:
            letter.retry()
    with app.acting(by="bob@example.com"):
        app.schedule("report-us").pause(why="audit of the numbers")
        app.run(filled.halted_run).revive()


def _work_off(app: Any) -> None:
    with Batches(app) as worker:
        worker.work_off(200)
