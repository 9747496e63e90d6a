"""The application of `penstock demo`: a pipeline that charges orders, each exactly once, whatever happens to workers.

The demo sets PENSTOCK_DATABASE_URL, so that this module and the worker processes use the same database.
"""

from __future__ import annotations

import time

from sqlalchemy import Column, Integer, MetaData, String, Table

from penstock.app import Penstock
from penstock.context import current
from penstock.pipelines.define.graph import switch

app = Penstock()
tables = MetaData()
ledger = Table(
    "ledger",
    tables,
    Column("entry", Integer, primary_key=True),
    Column("order_id", Integer, nullable=False),  # not unique on purpose: a second charge would be visible
    Column("receipt", String(40), nullable=False),
)


@app.task
def list_orders(count: int) -> list[int]:
    """List the orders that the demo works on."""
    return list(range(count))


@app.task
def charge(order_id: int, seconds: float) -> int:
    """Do slow work without a transaction, then write the charge and the end of the step in one."""
    job = current()
    time.sleep(seconds)
    with job.transaction() as connection:
        connection.execute(ledger.insert().values(order_id=order_id, receipt=f"receipt-{order_id}"))
        job.complete(order_id)
    return order_id


@app.task
def destination(order_id: int) -> str:
    """Decide how an order is handled."""
    return "abroad" if order_id % 5 == 0 else "home"


@app.task
async def ship_abroad(_way: str) -> str:
    return "by ship"


@app.task
async def ship_home(_way: str) -> str:
    return "by van"


@app.task
def close_books(parcels: list[str]) -> dict[str, int]:
    """Close the books. Runs once, when every order was handled."""
    return {way: parcels.count(way) for way in sorted(set(parcels))}


@app.pipeline
def fulfil(count: int, seconds: float):  # type: ignore[no-untyped-def]
    """Fan out over the orders, branch for each, come together at the end."""
    order = charge.map(list_orders(count), seconds)
    parcel = switch(destination(order), {"abroad": ship_abroad}, otherwise=ship_home)
    return close_books(parcel.collect())
