"""The application of the hostile handlers, which a fresh process can import, and the innocents beside them."""

from __future__ import annotations

import os
import signal
from typing import Any

from sqlalchemy import String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Concurrency, Penstock, Reconcilable, Retry
from tests.fuzz.hostile import act

app = Penstock(
    os.environ["PENSTOCK_TEST_SHOP_URL"],
    executor_processes=1,
    heartbeat_interval=0.2,
    housekeeping_interval=0.05,
    concurrency=4,
)


class Base(DeclarativeBase):
    pass


class Row(Base, Reconcilable):
    __tablename__ = "rows"
    id: Mapped[int] = mapped_column(primary_key=True)
    way: Mapped[str] = mapped_column(String(10))
    story: Mapped[str | None] = mapped_column(Text)
    done: Mapped[int] = mapped_column(default=0)


@app.task(retries=0, max_crashes=0)
def in_thread(case: str) -> Any:
    return act(case)


@app.task(retries=0, max_crashes=0)
async def on_loop(case: str) -> Any:
    return act(case)


@app.task(retries=0, max_crashes=0, executor="process")
def in_process(case: str) -> Any:
    return act(case)


@app.task(retries=0, max_crashes=0, executor="process")
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(retries=0)
async def double(number: int) -> int:
    return 2 * number


@app.task(retries=0)
def thread_double(number: int) -> int:
    return 2 * number


@app.task(retries=0, executor="process")
def process_double(number: int) -> int:
    return 2 * number


@app.task(retries=0, limits=[Concurrency(1)])
async def limited_double(number: int) -> int:
    return 2 * number


@app.task(retries=0)
async def numbers(count: int) -> list[int]:
    return list(range(count))


@app.task(retries=0)
async def total(values: list[int]) -> int:
    return sum(values)


@app.pipeline
def sum_of_doubles(count: int) -> Any:
    return total(double.map(numbers(count)).collect())


SELDOM: dict[str, Any] = {"workers": 2, "backoff": Retry(delay=3600)}


@app.reconciler(Row, where=(Row.done == 0) & (Row.way == "thread"), name="threaded", **SELDOM)
def settle(item: Any) -> Any:
    return {"done": 1} if item.row.story is None else act(item.row.story)


@app.reconciler(
    Row, where=(Row.done == 0) & (Row.way == "process"), name="in_process", executor="process", **SELDOM
)
def settle_in_process(item: Any) -> Any:
    return {"done": 1} if item.row.story is None else act(item.row.story)


@app.reconciler(Row, where=(Row.done == 0) & (Row.way == "loop"), name="on_loop", **SELDOM)
async def settle_on_loop(item: Any) -> Any:
    return {"done": 1} if item.row.story is None else act(item.row.story)
