"""Types as users annotate them, for the tests of the codec."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple, NotRequired, TypedDict
from uuid import UUID

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    computed_field,
)

from penstock.values.typed_json.signature import Signature

MOMENT = datetime(2026, 11, 1, 12, 30, tzinfo=timezone(timedelta(hours=2)))
KEY = UUID(int=7)


class Colour(Enum):
    RED = "red"
    MIXED = (1, 2)


class Mode(StrEnum):
    FAST = "fast"


class Level(IntEnum):
    LOW = 1


@dataclass
class Line:
    sku: str
    amount: Decimal
    at: datetime | None = None


@dataclass(frozen=True)
class Order:
    id: UUID
    lines: list[Line]
    colours: set[Colour] = field(default_factory=set)
    pair: tuple[int, str] = (0, "")


@dataclass
class GiftLine(Line):
    greeting: str = field(kw_only=True)


class Account(BaseModel):
    model_config = ConfigDict(extra="forbid")

    owner: str
    balance: Decimal
    secret_key: bytes = Field(alias="secretKey", default=b"")
    parent: Account | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return self.owner.upper()


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")


class Half(BaseModel):
    """A model that leaves a field out when it is written."""

    shown: int
    hidden: int = Field(default=0, exclude=True)


class Savings(Account):
    rate: float = 0.0


class Address(TypedDict):
    street: str
    since: NotRequired[date]


class Place(TypedDict, total=False):
    home: Address
    work: list[Address]


class Span(NamedTuple):
    begin: datetime
    length: timedelta


def signature_for(annotation: Any) -> Signature:
    def task(value: Any) -> Any: ...

    task.__annotations__ = {"value": annotation, "return": annotation}
    return Signature.of(task, "shop.task")


def there_and_back(annotation: Any, value: object) -> object:
    signature = signature_for(annotation)
    _, kwargs = signature.decode_arguments(signature.encode_arguments((value,), {}))
    assert signature.decode_result(signature.encode_result(value)) == kwargs["value"]
    return kwargs["value"]
