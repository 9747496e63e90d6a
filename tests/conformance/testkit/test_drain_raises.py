"""testing/drain, testing/inline: `drain(raises=True)` and `inline(raises=True)`: a handler's own error comes out
where the test stands.
"""

from __future__ import annotations

import asyncio
import traceback
from typing import Any

import pytest
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from penstock import Penstock, Reconcilable, Retry
from penstock.errors import PenstockError
from penstock.testing import drain, drain_async, inline


class Refused(Exception):
    """An error with more in it than words."""

    def __init__(self, card: object) -> None:
        super().__init__("the card was refused")
        self.card = card


@pytest.fixture
def pay(app: Penstock) -> Any:
    @app.task(name="pay", retries=Retry(max=1, delay=0))
    def pay(number: int) -> int:
        if number < 0:
            raise Refused(number)
        return number

    return pay


def test_the_first_error_is_raised_and_recorded(app: Penstock, pay: Any) -> None:
    good, bad, after = pay.enqueue(1), pay.enqueue(-1), pay.enqueue(2)
    with pytest.raises(Refused) as caught:
        drain(app, raises=True)
    assert caught.value.card == -1
    assert "in pay" in "".join(traceback.format_exception(caught.value))
    assert (good.status, after.status) == ("succeeded", "available")
    assert [attempt.outcome for attempt in bad.attempts()] == ["errored"]
    with pytest.raises(Refused):
        drain(app, raises=True)
    drain(app, raises=True)
    assert (bad.status, after.status) == ("failed", "succeeded")


def test_nothing_is_raised_unless_it_is_wished(app: Penstock, pay: Any) -> None:
    pay.enqueue(-1)
    assert drain(app) == 2
    assert drain(app, raises=True) == 0


@pytest.mark.one_database
def test_so_it_is_for_async_callers_and_handlers(app: Penstock, pay: Any) -> None:
    @app.task(name="ask", retries=0)
    async def ask() -> None:
        raise Refused("async")

    async def main() -> None:
        with pytest.raises(Refused) as caught:
            await drain_async(app, raises=True)
        seen.append(caught.value.card)

    seen: list[Any] = []
    ask.enqueue()
    asyncio.run(main())
    pay.enqueue(-5)
    asyncio.run(main())
    ask.enqueue()
    with pytest.raises(Refused):
        drain(app, raises=True)
    assert seen == ["async", -5]


@pytest.mark.one_database
def test_what_no_handler_raised_is_raised_too(app: Penstock) -> None:
    @app.task(name="odd", retries=0)
    def odd() -> object:
        return object()

    @app.task(name="slow", retries=0, timeout=0.01)
    async def slow() -> None:
        await asyncio.sleep(60)

    odd.enqueue()
    with pytest.raises(PenstockError, match="odd: "):
        drain(app, raises=True)
    slow.enqueue()
    with pytest.raises(PenstockError, match="slow took longer than its timeout"):
        drain(app, raises=True)


@pytest.mark.one_database
def test_inline_raises_where_it_is_enqueued(app: Penstock, pay: Any) -> None:
    @app.task(name="outer", retries=0)
    def outer() -> None:
        pay.enqueue(-3)

    with inline(app, raises=True):
        assert pay.enqueue(1).status == "succeeded"
        with pytest.raises(Refused):
            outer.enqueue()

        async def main() -> None:
            with pytest.raises(Refused):
                pay.enqueue(-4)

        asyncio.run(main())
    with inline(app):
        assert pay.enqueue(-1).attempts()


def test_errors_of_rows_are_raised_too(app: Penstock) -> None:
    class Base(DeclarativeBase): ...

    class Volume(Base, Reconcilable):
        __tablename__ = "volumes"
        id: Mapped[int] = mapped_column(primary_key=True)

    @app.reconciler(Volume, name="volumes")
    def handle(item: Any) -> None:
        raise Refused(item.id)

    Base.metadata.create_all(app.database.engine)
    with Session(app.database.engine) as session, session.begin():
        session.add(Volume(id=1))
    with pytest.raises(Refused) as caught:
        drain(app, raises=True)
    assert caught.value.card == 1
