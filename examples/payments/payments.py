"""Payments: `once`, a transaction, a human approval, and a revival.

The card is charged through a provider that is asked once, under the job's idempotency key. Large amounts wait for
somebody's approval, holding no worker. The booking is written in the same transaction as the end of its step, so it is
there exactly once. When the bank's books are closed, the run halts; revived later, it does not charge again.

    python payments.py
"""

from __future__ import annotations

import asyncio
from typing import Any

from sqlalchemy import Column, Integer, MetaData, String, Table, select

import penstock
from penstock import Penstock, switch, wait_for

app = Penstock()
books = MetaData()
bookings = Table("bookings", books, Column("charge", String(60), primary_key=True), Column("cents", Integer))


class Provider:
    """A card provider that keeps promises only about idempotency keys."""

    def __init__(self) -> None:
        self.charges: dict[str, int] = {}
        self.books_are_open = False

    def charge(self, cents: int, key: str) -> str:
        self.charges.setdefault(key, cents)
        return f"charge-{key[-12:]}"


provider = Provider()


@app.task
def assess(cents: int) -> str:
    return "large" if cents > 100_00 else "small"


@app.task(retries=0)
def charge(cents: int, approval: Any) -> str:
    if approval == "no":
        return ""
    job = penstock.current()
    return str(job.once("charge", provider.charge, cents, job.idempotency_key))


@app.task(retries=0)
def book(charged: str, cents: int) -> str:
    if not charged:
        return "refused"
    if not provider.books_are_open:
        raise RuntimeError("the books are closed")
    job = penstock.current()
    with job.transaction() as connection:
        connection.execute(bookings.insert().values(charge=charged, cents=cents))
        job.complete("booked")
    return "booked"


@app.pipeline
def pay(cents: int):
    approval = switch(
        assess(cents), {"large": lambda: wait_for("approve", timeout=86_400, default="no")}, otherwise=None
    )
    return book(charge(cents, approval), cents)


async def ended(run: Any) -> str:
    while not (status := await run.status_async()).terminal:
        await asyncio.sleep(0.02)
    return str(status.value)


async def main() -> None:
    app.prepare()
    books.create_all(app.database.engine)
    async with app.worker():
        large = await pay.options(key="invoice-17").trigger_async(250_00)
        again = await pay.options(key="invoice-17").trigger_async(250_00)
        print("the same invoice twice is", "one run" if again == large else "two runs")
        await large.signal_async("approve", {"by": "ann"})
        print("with the books closed it is", await ended(large))
        provider.books_are_open = True
        revived = await large.revive_async()
        print("revived it is", await ended(revived), "and", await revived.result_async())
        small = await pay.trigger_async(5_00)
        print("a small one is", await ended(small))
    print(len(provider.charges), "charges for two payments")
    with app.database.engine.connect() as connection:
        print(len(connection.execute(select(bookings)).all()), "bookings")


if __name__ == "__main__":
    asyncio.run(main())
    app.close()
