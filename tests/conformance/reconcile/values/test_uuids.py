"""reconcile/table: UUID columns of the user's: real UUIDs through every door, on every database."""

import asyncio
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session

import penstock
from penstock import Penstock
from penstock.errors import ConfigurationError
from penstock.testing import drain
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.cloud import Cloud, Token, declare

Hands = Callable[..., ManualReconciler]
KEY, OWNER = uuid4(), uuid4()
STATEMENT = select(Token.id, Token.owner).where(Token.owner == OWNER)


@pytest.fixture(autouse=True)
def token(cloud: Cloud) -> None:
    cloud.add(Token, {"id": KEY, "owner": OWNER})


def test_in_the_block_of_a_lock(app: Penstock) -> None:
    with app.lock(Token, KEY) as connection:
        assert tuple(connection.execute(STATEMENT).one()) == (KEY, OWNER)
        with Session(bind=connection) as session:
            found = session.get(Token, KEY)
            assert found is not None
            assert isinstance(found.owner, UUID)


def test_a_key_may_be_given_as_text(app: Penstock) -> None:
    with app.lock(Token, str(KEY)) as connection:
        assert connection.execute(STATEMENT).one()
    app.hint(Token, str(KEY))
    for wrong in ("nothing of the kind", 5):
        with pytest.raises(ConfigurationError, match="id is a UUID"), app.lock(Token, wrong):
            raise AssertionError


def test_in_the_block_of_a_lock_in_async_code(app: Penstock) -> None:
    async def look() -> tuple[object, ...]:
        async with app.lock(Token, KEY) as connection:
            return tuple((await connection.execute(STATEMENT)).one())

    assert asyncio.run(look()) == (KEY, OWNER)


def test_in_the_transaction_of_a_job(app: Penstock) -> None:
    seen: list[tuple[object, ...]] = []

    @app.task
    def look() -> None:
        job = penstock.current()
        with job.transaction() as connection:
            seen.append(tuple(connection.execute(STATEMENT).one()))
            job.complete(None)

    job = look.enqueue()
    drain(app)
    job.result(timeout=0)
    assert seen == [(KEY, OWNER)]


def test_in_the_row_of_an_item_and_in_what_it_returns(app: Penstock, cloud: Cloud, hand: Hands) -> None:
    new = uuid4()
    mine = hand(declare(app, Token, where=Token.owner == OWNER))
    (item,) = mine.take()
    assert (item.id, item.row.id, item.row.owner) == (KEY, KEY, OWNER)
    mine.finish(mine.end(item, {"owner": new}))
    assert cloud.get(Token, KEY).owner == new


def test_on_a_connection_that_penstock_has_used_before(app: Penstock, database_kind: str) -> None:
    """Statements in plain text give whatever the driver gives, also after ours have run on the same connection."""
    with app.database.sqlalchemy() as (connection, tx):
        tx.rows("SELECT id FROM {jobs}")
        found = connection.execute(text("SELECT owner FROM tokens")).scalar_one()
    assert (found if database_kind == "postgres" else UUID(found)) == OWNER
