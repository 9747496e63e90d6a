"""The application that the dashboard shows in tests and pictures: orders, films and volumes of a small company.

It stands alone, so that workers and `penstock dashboard` can serve it as `tests.browser.shop:app`.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import String
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import penstock
from penstock import Cancel, Concurrency, Penstock, Rate, Reconcilable, Retry, Snooze, switch, wait_for

app = Penstock()


class PaymentDeclined(Exception):
    """The bank said no."""


class GatewayTimeout(Exception):
    """The bank said nothing."""


@dataclass
class Address:
    """Where a parcel goes."""

    street: str
    city: str


@app.task(name="mail.receipt", queue="mail")
def send_receipt(order: int, address: str = "ann@example.com") -> str:
    return f"sent to {address}"


@app.task(name="bank.charge", queue="billing", retries=0, limits=[Concurrency(2, key="account")])
def charge(account: str, cents: int) -> int:
    if cents % 7 == 0:
        raise PaymentDeclined(f"card of {account} declined: insufficient funds")
    if cents % 11 == 0:
        raise GatewayTimeout("no answer from bank.example within 10 s")
    return cents


@app.task(name="bank.settle", queue="billing", retries=Retry(max=3, delay=600), limits=[Rate(3, per=3600)])
def settle(account: str) -> None:
    raise GatewayTimeout(f"settlement of {account}: no answer from bank.example within 10 s")


@app.task(name="report.render", queue="reports", timeout=60)
def render(region: str, pages: int = 3) -> dict[str, int]:
    return {region: pages}


@app.task(name="parcel.label", queue="shipping")
def label(address: Address, copies: int = 1) -> str:
    return f"{address.street}, {address.city}"


@app.task(name="import.poll", queue="imports")
def poll(source: str) -> Snooze | Cancel:
    return Snooze(1800) if source == "catalogue" else Cancel("the source is gone")


@app.task(name="film.encode", queue="films")
def encode(film: str, seconds: float = 0.0) -> str:
    job = penstock.current()
    for part in range(10):
        job.progress(part / 10, f"{part} of 10 parts")
        time.sleep(seconds / 10)
    return f"{film}.av1"


@app.task(name="text.echo")
def echo(text: Any) -> Any:
    return text


# A pipeline with everything: expand, switch, wait, child.


@app.task(name="order.load")
def load_orders(count: int) -> list[int]:
    return list(range(1, count + 1))


@app.task(name="order.reserve")
def reserve(order: int) -> int:
    return order


@app.task(name="order.pack", retries=0)
def pack(order: int) -> int:
    if order % 211 == 0:
        raise ValueError(f"order {order}: shelf 14 is empty")
    return order


@app.task(name="order.destination")
def destination(order: int) -> str:
    return "abroad" if order % 5 == 0 else "home"


@app.task(name="ship.abroad", queue="shipping")
def by_ship(way: str) -> str:
    return "by ship"


@app.task(name="ship.home", queue="shipping")
def by_van(way: str) -> str:
    return "by van"


@app.task(name="books.close")
def close_books(parcels: list[str | None]) -> dict[str, int]:
    return {way: parcels.count(way) for way in sorted({parcel for parcel in parcels if parcel})}


@app.task(name="books.publish")
def publish(totals: dict[str, int], approved: Any) -> str:
    return f"{sum(totals.values())} parcels, approved by {approved}"


@app.pipeline(name="fulfil", on_failure="continue")
def fulfil(count: int) -> Any:
    order = pack(reserve.map(load_orders(count)))
    parcel = switch(destination(order), {"abroad": by_ship}, otherwise=by_van)
    return close_books(parcel.collect())


@app.pipeline(name="month-end")
def month_end(count: int) -> Any:
    totals = fulfil(count)
    approved = wait_for("approve", timeout=7 * 86_400, default="nobody")
    return publish(totals, approved)


@app.task(name="film.probe")
def probe(film: str) -> dict[str, Any]:
    return {"film": film, "streams": ["video", "english", "german"]}


@app.task(name="film.video")
def video(info: dict[str, Any]) -> str:
    return "video"


@app.task(name="film.audio")
def audio(info: dict[str, Any]) -> str:
    return "audio"


@app.task(name="film.subtitles", retries=0)
def subtitles(info: dict[str, Any]) -> str:
    if "broken" in info["film"]:
        raise UnicodeDecodeError("utf-8", b"\xff\xfe", 0, 1, "invalid start byte")
    return "subtitles"


@app.task(name="film.merge")
def merge(*parts: str) -> str:
    return "+".join(parts)


@app.task(name="film.upload")
def upload(file: str) -> str:
    return f"s3://films/{file}"


@app.pipeline(name="transcode")
def transcode(film: str) -> Any:
    info = probe(film)
    return upload(merge(video(info), audio(info), subtitles(info)))


@app.task(name="film.grade", queue="lab")
def grade(film: str) -> str:
    """Takes so much memory that its process is killed, until it has been tried twice."""
    time.sleep(0.4)
    if penstock.current().attempt < 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"{film} in colour"


@app.task(name="film.scan", queue="lab")
def scan(film: str) -> str:
    time.sleep(0.3)
    return film


@app.pipeline(name="colouring")
def colouring(film: str) -> Any:
    """Scans a film and grades its colours."""
    return grade(scan(film))


# Rows that a reconciler looks after.


class Base(DeclarativeBase):
    pass


class Volume(Base, Reconcilable):
    __tablename__ = "volumes"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(50))
    status: Mapped[str] = mapped_column(String(20), default="submitted")


@app.reconciler(Volume, where=Volume.status == "submitted", every=60)
def provision(item: Any) -> dict[str, Any] | None:
    if item.row.name.startswith("broken"):
        raise GatewayTimeout("cloud.example did not answer")
    return {"status": "active"}


send_receipt.schedule("0 3 * * *", tz="Europe/Berlin", name="nightly-receipts", args=(1,))
render.schedule("0 9 * * mon-fri", tz="America/New_York", name="report-us", args=("us",))
transcode.schedule(every=3600, name="hourly-film", args=("trailer.mov",), overlap="skip")
