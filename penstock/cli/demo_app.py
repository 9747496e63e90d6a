"""The application of `penstock demo`: orders are charged, each exactly once, whatever happens to the workers.

The demo sets PENSTOCK_DATABASE_URL, so that this module and the worker processes speak of the same database.
"""

from __future__ import annotations

import time

from sqlalchemy import Column, Integer, MetaData, String, Table

from penstock.app import Penstock
from penstock.context import current

app = Penstock()
tables = MetaData()
ledger = Table(
    "ledger",
    tables,
    Column("entry", Integer, primary_key=True),
    Column("order_id", Integer, nullable=False),  # not unique on purpose: a second charge would be seen
    Column("receipt", String(40), nullable=False),
)


@app.task
def charge(order_id: int, seconds: float) -> str:
    """Slow work without a transaction, then the charge and the end of the job in one."""
    job = current()
    time.sleep(seconds)
    receipt = f"receipt-{order_id}"
    with job.transaction() as connection:
        connection.execute(ledger.insert().values(order_id=order_id, receipt=receipt))
        job.complete(receipt)
    return receipt
