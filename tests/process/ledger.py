"""A table of the application's own, in the same database: a line for every effect that was ever committed."""

from sqlalchemy import Column, Integer, MetaData, String, Table, insert, select

import penstock
from penstock import Penstock

TABLE = Table(
    "ledger",
    MetaData(),
    Column("line", Integer, primary_key=True, autoincrement=True),
    Column("job", String(64), nullable=False),
    Column("amount", Integer, nullable=False),
)


def declare(app: Penstock) -> None:
    """A task that books, and that sometimes is killed with a booking half done."""

    @app.task(name="book", retries=0, max_crashes=None)
    def book(amount: int) -> int:
        job = penstock.current()
        with job.transaction() as connection:
            connection.execute(insert(TABLE).values(job=job.id, amount=amount))
            job.complete(amount)
        return -1


def create(app: Penstock) -> None:
    TABLE.metadata.create_all(app.database.engine)


def lines(app: Penstock) -> list[tuple[str, int]]:
    with app.database.engine.connect() as connection:
        return [(job, amount) for job, amount in connection.execute(select(TABLE.c.job, TABLE.c.amount))]
