"""values/typed_json/signature: Arguments and results: typed JSON, checked when enqueued, the same on every database."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, TypedDict
from uuid import UUID

import pydantic
import pytest

from penstock import Penstock
from penstock.errors import ArgumentError, JobFailed, PayloadTooLarge, SerializationError
from penstock.testing import drain
from tests.conformance.rows import count, rows


class Colour(enum.Enum):
    RED = "red"


class Customer(pydantic.BaseModel):
    name: str
    since: date


class Address(TypedDict):
    street: str
    zip: int


@dataclass
class Order:
    id: UUID
    total: Decimal
    at: datetime
    colour: Colour
    customer: Customer


ORDER = Order(
    UUID("12345678-1234-5678-1234-567812345678"),
    Decimal("19.990"),
    datetime(2026, 3, 29, 2, 30, 0, 123456, tzinfo=timezone(timedelta(hours=2))),
    Colour.RED,
    Customer(name="Zoë 🚰", since=date(2020, 2, 29)),
)
ADDRESS: Address = {"street": "Hauptstraße", "zip": 10115}


def test_annotated_types_round_trip(app: Penstock) -> None:
    seen: list[Order] = []

    @app.task
    def pay(order: Order, address: Address, tips: list[Decimal]) -> Order:
        seen.append(order)
        assert (address, tips) == (ADDRESS, [Decimal("1.10")])
        return order

    job = pay.enqueue(ORDER, ADDRESS, [Decimal("1.10")])
    drain(app)
    assert seen == [ORDER]
    assert job.result(timeout=0) == ORDER
    assert app.job(job.id).result(timeout=0) == ORDER, "also for a handle that knows only the id"


VALUES: list[Any] = [
    None,
    True,
    0,
    -(2**63),
    2**70,
    1.5,
    1e300,
    "",
    "plain",
    "NUL \0 in the middle",
    "'\"\\%s %(a)s :a {now} $1 -- ; \n\t\r",
    "ünïcödé 漢字 🚰 \u200b\u202e",
    "\U0010ffff",
    [],
    {},
    [None, False, 0],
    {"a": {"b": [1, {"c": None}]}},
    {"$uuid": "no tag"},
    UUID(int=1),
    Decimal("0.1"),
    datetime(2026, 1, 1),
    timedelta(microseconds=1),
    b"\x00\xff",
]


def test_plain_values_round_trip(app: Penstock) -> None:
    @app.task
    def echo(value: Any) -> Any:
        return value

    jobs = echo.enqueue_many([(value,) for value in VALUES])
    drain(app)
    for job, value in zip(jobs, VALUES, strict=True):
        assert job.result(timeout=0) == value, repr(value)


WRONG: list[Any] = [
    ((), {}, "missing 'order'"),
    ((1, 2, 3), {}, "takes 2 positional arguments, but 3 were given"),
    ((1,), {"ordr": 2}, "no such parameter.*order"),
    ((1,), {"order": 2}, "given twice"),
    (("one",), {}, "'order'"),
    ((1,), {"note": object()}, "'note'"),
    ((1,), {"note": "\ud800"}, "lone surrogate"),
    ((float("nan"),), {}, "'order'"),
]


def test_wrong_arguments_are_refused_at_enqueue_and_leave_no_row(app: Penstock) -> None:
    @app.task(name="shop.pay")
    def pay(order: int, note: str | None = None) -> None: ...

    app.prepare()
    for args, kwargs, message in WRONG:
        with pytest.raises(ArgumentError, match=message) as refused:
            pay.enqueue(*args, **kwargs)
        assert "shop.pay" in str(refused.value)
        assert isinstance(refused.value, TypeError)
    assert count(app, "jobs") == 0


def test_arguments_over_the_limit_are_refused_by_name_and_size(make_app: Callable[..., Penstock]) -> None:
    app = make_app(payload_limit="10 KiB")

    @app.task(name="shop.pay")
    def pay(note: str) -> None: ...

    app.prepare()
    with pytest.raises(PayloadTooLarge, match=r"argument list of shop.pay takes 20,\d+ bytes.*allows 10,240"):
        pay.enqueue("x" * 20_000)
    with pytest.raises(PayloadTooLarge):
        pay.enqueue("ü" * 6_000)
    assert count(app, "jobs") == 0
    pay.enqueue("x" * 10_000)


def test_a_megabyte_goes_through(app: Penstock) -> None:
    @app.task
    def echo(note: str) -> str:
        return note

    text = "ü🚰" * 170_000
    job = echo.enqueue(text)
    assert len(text.encode()) > 1_000_000
    drain(app)
    assert job.result(timeout=0) == text


def test_a_result_that_is_no_json_is_the_jobs_error(app: Penstock) -> None:
    @app.task(retries=0)
    def make() -> Any:
        return object()

    job = make.enqueue()
    assert drain(app) == 1
    assert job.status == "failed"
    with pytest.raises(JobFailed, match="result_not_serializable") as failed:
        job.result(timeout=0)
    assert "SerializationError" in failed.value.error


def test_a_result_of_the_wrong_type_is_the_jobs_error(app: Penstock) -> None:
    @app.task(retries=0)
    def make() -> int:
        return "text"  # type: ignore[return-value]

    job = make.enqueue()
    drain(app)
    with pytest.raises(JobFailed, match="make"):
        job.result(timeout=0)


def test_a_result_over_the_limit_is_the_jobs_error(make_app: Callable[..., Penstock]) -> None:
    app = make_app(payload_limit="10 KiB")

    @app.task(retries=0, name="shop.make")
    def make() -> str:
        return "x" * 20_000

    job = make.enqueue()
    drain(app)
    with pytest.raises(JobFailed, match=r"payload_too_large.*shop.make takes 20,\d+ bytes"):
        job.result(timeout=0)


def test_a_result_with_a_lone_surrogate_is_the_jobs_error(app: Penstock) -> None:
    @app.task(retries=0)
    def make() -> str:
        return "\ud800"

    job = make.enqueue()
    drain(app)
    with pytest.raises(JobFailed, match="surrogate"):
        job.result(timeout=0)


def test_arguments_that_no_longer_fit_the_signature_say_so(app: Penstock) -> None:
    @app.task(name="shop.pay")
    def pay(order: int) -> None: ...

    job = pay.enqueue(1)
    del app.tasks["shop.pay"]

    @app.task(name="shop.pay", retries=0)
    def changed(order_id: int) -> None: ...

    drain(app)
    with pytest.raises(JobFailed, match="arguments_invalid"):
        job.result(timeout=0)


def test_a_new_parameter_with_a_default_fits_old_jobs(app: Penstock) -> None:
    @app.task(name="shop.pay")
    def pay(order: int) -> int:
        return order

    job = pay.enqueue(1)
    del app.tasks["shop.pay"]

    @app.task(name="shop.pay")
    def changed(order: int, times: int = 3) -> int:
        return order * times

    drain(app)
    assert job.result(timeout=0) == 3


def test_variadic_arguments(app: Penstock) -> None:
    @app.task
    def add(first: int, *more: int, **named: int) -> list[int]:
        return [first, *more, *named.values()]

    job = add.enqueue(1, 2, 3, x=4, y=5)
    drain(app)
    assert job.result(timeout=0) == [1, 2, 3, 4, 5]


def test_what_is_stored_is_plain_json(app: Penstock) -> None:
    @app.task
    def pay(order: int, note: str = "none") -> None: ...

    pay.enqueue(7)
    assert rows(app, "SELECT payload FROM {jobs}") == [('{"order":7}',)]


def test_nothing_is_ever_pickled(app: Penstock) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            raise AssertionError("an enqueue tried to pickle this")

    @app.task
    def pay(order: Any) -> None: ...

    with pytest.raises((ArgumentError, SerializationError)):
        pay.enqueue(Evil())
