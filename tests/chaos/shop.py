"""The application that the hosts run: `penstock worker tests.chaos.shop:app`.

Every body writes to the ledger that it began, under which claim. What must happen exactly once is written in a
transaction of the job's own; what must stay the same is remembered with once().
"""

import asyncio
import os
import time
from pathlib import Path
from random import random
from signal import SIGKILL
from typing import Any

from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, insert

import penstock
from penstock import Penstock, Retry, Snooze
from tests.chaos import plan, terms
from tests.chaos.ledger import Ledger

app = Penstock()
ledger = Ledger(Path(os.environ[terms.LEDGER]), os.environ[terms.HOST])

metadata = MetaData()
bookings = Table(
    "bookings",
    metadata,
    Column("line", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("job", String(64), nullable=False),
    Column("number", Integer, nullable=False),
)
orders = Table("orders", metadata, Column("number", Integer, primary_key=True, autoincrement=False))
bumps = Table(
    "bumps",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("counter", Integer, nullable=False),
)

FOREVER: dict[str, Any] = {"retries": 0, "max_crashes": None}


def begin() -> None:
    """In the ledger: this body runs, under this claim."""
    job = penstock.current()
    ledger.write("begin", job=job.id, attempt=job.attempt, task=job.task, run=job.run_id)


async def work(seconds: float) -> None:
    begin()
    await asyncio.sleep(seconds * random())


@app.task(name="plain", **FOREVER)
async def plain(number: int) -> int:
    await work(0.3)
    return number


@app.task(name="threaded", **FOREVER)
def threaded(number: int) -> int:
    begin()
    time.sleep(0.2 * random())
    return number


@app.task(name="crunch", executor="process", **FOREVER)
def crunch(number: int) -> int:
    begin()
    return number


@app.task(name="stumble", queue="mail", retries=Retry(max=3, delay=0.2, factor=1), max_crashes=None)
async def stumble(number: int) -> int:
    await work(0.1)
    if penstock.current().retry_count < plan.errors_of(number):
        raise ValueError("not yet")
    return number


@app.task(name="doomed", retries=Retry(max=1, delay=0.1), max_crashes=None)
def doomed(number: int) -> int:
    begin()
    raise ValueError("never")


@app.task(name="overdue", retries=Retry(max=1, delay=0.1), max_crashes=None, timeout=1.5)
async def overdue(number: int) -> int:
    """The first time it takes too long."""
    begin()
    if penstock.current().retry_count == 0:
        await asyncio.sleep(60)
    return number


@app.task(name="doze", **FOREVER)
async def doze(number: int) -> int | Snooze:
    """The attempt that comes here first goes back to sleep."""
    begin()
    job = penstock.current()
    first = await asyncio.to_thread(job.once, "first", lambda: job.attempt)
    return Snooze(0.3) if first == job.attempt else number


@app.task(name="charge", queue="mail", **FOREVER)
def charge(number: int) -> str:
    """A name that is drawn anew whenever it is asked for: who is asked twice must say the same."""
    begin()
    job = penstock.current()
    name = job.once("charge", lambda: f"{number}-{random()}")
    ledger.write("once", job=job.id, value=name)
    time.sleep(0.3 * random())
    return str(name)


@app.task(name="book", **FOREVER)
def book(number: int) -> int:
    begin()
    job = penstock.current()
    with job.transaction() as connection:
        connection.execute(insert(bookings).values(job=job.id, number=number))
        job.complete(number)
    return -1


@app.task(name="slow", priority=5, **FOREVER)
async def slow(number: int) -> int:
    """Long enough to be held by a worker when a fault happens."""
    begin()
    await asyncio.sleep(2 + 2 * random())
    return number


# What schedules start


@app.task(name="beat", **FOREVER)
async def beat() -> None:
    await work(0.2)


@app.task(name="careful", **FOREVER)
async def careful() -> None:
    """Sometimes longer than it is until the next tick."""
    await work(2.0)


@app.task(name="minutely", **FOREVER)
def minutely() -> None:
    begin()


@app.task(name="poison", retries=0, max_crashes=1)
def poison(number: int) -> int:
    """Kills the process that runs it."""
    begin()
    os.kill(os.getpid(), SIGKILL)
    return number
