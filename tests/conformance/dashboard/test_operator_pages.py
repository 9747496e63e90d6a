"""dashboard/pages/operate: Pages for operators: the sample of a group of failures, reconcilers whose table is
locked, limits, messages.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="Jinja2 is not installed")

from sqlalchemy import String, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Penstock, Rate, Reconcilable
from penstock.testing import drain
from tests.conformance.dashboard.browser import browser


def test_the_sample_of_a_group_is_one_of_its_own(app: Penstock) -> None:
    @app.task(name="bad", retries=0)
    def bad(number: int) -> None:
        if number:
            raise KeyError(f"key {number}")
        raise ValueError("value")

    bad.enqueue_many([(0,), (1,)])
    drain(app)
    app.database.in_transaction(lambda tx: tx.run("UPDATE {dead_letters} SET failed_at = 1000"))
    groups = browser(app).get("/failures.json").json["groups"]
    found = {group["error_type"]: group["error"]["text"] for group in groups}
    assert found == {"KeyError": "'key 1'", "ValueError": "value"}


def test_a_reconciler_whose_table_is_locked_does_not_hold_up_its_page(
    make_app: Callable[..., Penstock],
) -> None:
    app = make_app(dashboard_timeout=0.3)
    if app.settings.backend != "postgresql":
        pytest.skip("only there a whole table is locked")

    class Base(DeclarativeBase):
        pass

    class Volume(Base, Reconcilable):
        __tablename__ = "volumes"
        id: Mapped[int] = mapped_column(primary_key=True)
        status: Mapped[str] = mapped_column(String(20), default="new")

    @app.reconciler(Volume, where=Volume.status == "new", name="attach")
    def attach(volume: Any) -> None: ...

    app.prepare()
    Base.metadata.create_all(app.database.engine)
    ann = browser(app)
    assert ann.get("/reconcilers.json").json["reconcilers"][0]["eligible"] == 0
    with app.database.engine.begin() as connection:
        connection.execute(text("LOCK TABLE volumes IN ACCESS EXCLUSIVE MODE"))
        assert ann.get("/reconcilers").status == 503


def test_limits_are_listed_by_how_many_wait(app: Penstock) -> None:
    @app.task(name="charge", limits=[Rate(1, per=3600, key="account")])
    def charge(account: str) -> None: ...

    charge.enqueue_many([("a",), ("m",), ("m",), ("z",), ("z",), ("z",)])
    drain(app)
    limits = browser(app).get("/limits.json").json["limits"]
    assert [(limit["key"][-1], limit["waiting"]) for limit in limits] == [("z", 2), ("m", 1), ("a", 0)]
