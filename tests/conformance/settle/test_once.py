"""context, values/typed_json/once_value: the values that `once()` and its async twin store."""

import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from functools import partial

import pydantic
import pytest

import penstock
from penstock import Penstock
from penstock.testing import drain, travel


class Currency(Enum):
    EUR = "eur"


@dataclass
class Receipt:
    amount: Decimal
    at: datetime
    currency: Currency


class Card(pydantic.BaseModel):
    number: str
    receipts: list[Receipt] = []


RECEIPT = Receipt(Decimal("1.50"), datetime(2026, 11, 17, tzinfo=UTC), Currency.EUR)


def charge() -> Receipt:
    return RECEIPT


def register() -> Card:
    return Card(number="4", receipts=[RECEIPT])


def count() -> dict[int, tuple[int, ...]]:
    return {1: (2, 3)}


def promise_too_much() -> int:
    return {"seven": 7}  # type: ignore[return-value]


@pytest.mark.parametrize("function", [charge, register, count, promise_too_much, partial(charge), Currency])
def test_what_was_called_is_remembered_as_the_annotation_says(app: Penstock, function: object) -> None:
    """It was refused after the call had been made, and so the call was made again by every attempt."""
    calls: list[int] = []
    seen: list[object] = []
    arguments = ["eur"] if function is Currency else []

    @app.task(retries=1)
    def pay() -> None:
        seen.append(penstock.current().once("charge", function, *arguments))  # type: ignore[arg-type]
        penstock.current().once("calls", calls.append, 1)
        if len(seen) == 1:
            raise ConnectionError

    job = pay.enqueue()
    drain(app)
    with travel(app, 60):
        drain(app)
    assert job.status == "succeeded", job.attempts()[-1].error
    assert seen == [function(*arguments)] * 2  # type: ignore[operator]
    assert calls == [1]


def test_the_async_twin_takes_functions_of_every_kind(app: Penstock) -> None:
    calls: list[object] = []

    async def charge_async(amount: int) -> int:
        calls.append(amount)
        return amount

    def where(amount: int) -> bool:
        calls.append(amount)
        return threading.current_thread() is threading.main_thread()

    @app.task(retries=1)
    async def pay() -> list[object]:
        job = penstock.current()
        values: list[object] = [
            await job.once_async("async", charge_async, 7),
            await job.once_async("sync", where, amount=8),
            await job.once_async("lambda", lambda: charge_async(9)),
        ]
        if job.attempt == 1:
            raise ConnectionError
        return values

    paid = pay.enqueue()
    drain(app)
    with travel(app, 60):
        drain(app)
    assert paid.result(timeout=0) == [7, False, 9]
    assert calls == [7, 8, 9]


def test_a_coroutine_is_not_remembered(app: Penstock) -> None:
    async def charge_async() -> int:
        return 7

    @app.task(retries=0)
    async def pay() -> None:
        held = charge_async()
        try:
            _ = penstock.current().once("charge", lambda: held)
        finally:
            held.close()

    job = pay.enqueue()
    drain(app)
    assert "await job.once_async('charge', ...)" in str(job.attempts()[0].error)
