"""The application of the hostile handlers, which a fresh process can import, and the innocents beside them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

from sqlalchemy import String, Text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Concurrency, Penstock, Reconcilable, Retry, current
from penstock.middleware import HandlerCall
from tests.fuzz.hostile import act, thing

PLACES = ("handler", "handler", "before", "after", "result", "progress", "message", "once", "name")
"""Where a case is met: in the handler, in a middleware around it, or in what the handler says of itself."""

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


@app.middleware
def around(call: HandlerCall) -> Iterator[None]:
    where, case = call.arguments.get("where"), call.arguments.get("case", "")
    if where == "before":
        act(case)
    yield
    if where == "after":
        act(case)
    elif where == "result":
        call.result = thing(case)


def meet(case: str, where: str) -> Any:
    job = current()
    match where:
        case "handler":
            return act(case)
        case "progress":
            job.progress(thing(case))
        case "message":
            job.progress(0.5, thing(case))
        case "once":
            return job.once("it", act, case)
        case "name":
            return job.once(thing(case), lambda: 1)
    return None


@app.task(retries=0, max_crashes=0)
def in_thread(case: str, where: str = "handler") -> Any:
    return meet(case, where)


@app.task(retries=0, max_crashes=0)
async def on_loop(case: str, where: str = "handler") -> Any:
    return meet(case, where)


@app.task(retries=0, max_crashes=0, executor="process")
def in_process(case: str, where: str = "handler") -> Any:
    return meet(case, where)


@app.task(retries=0, max_crashes=0)
def telling(case: str) -> Any:
    current().context["it"] = thing(case)
    return act(case)


@app.task(retries=0)
def hearing(value: Any) -> Any:
    return value


@app.task(retries=0)
def calling(run_id: str, status: str) -> Any:
    return act(json.dumps(["return", ["circle"]]))


@app.pipeline(on_success=calling, on_complete=calling)
def told(case: str) -> Any:
    return hearing(telling(case))


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
