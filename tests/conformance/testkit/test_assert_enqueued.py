"""testing/enqueued: `assert_enqueued`: what was enqueued, and what there was instead."""

import asyncio
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ArgumentError, ConfigurationError, UnknownTask
from penstock.testing import assert_enqueued, assert_enqueued_async, drain


def test_assert_enqueued_finds_by_what_is_given(app: Penstock) -> None:
    @app.task(name="shop.send")
    def send(order: int, copy: str | None = None, *more: int, **named: str) -> None: ...

    job = send.options(queue="mail").enqueue(1, "ann", 7, 8, note="x")
    send.enqueue(2)
    drain(app)
    assert assert_enqueued(app, send, 1) == [job]
    assert assert_enqueued(app, "shop.send", 1, "ann", 7, 8, note="x", queue="mail", count=1) == [job]
    assert len(assert_enqueued(app, send)) == 2
    assert_enqueued(app, send, copy=None, count=1)
    assert_enqueued(app, send, 2, None)
    assert_enqueued(app, send, 3, count=0)
    assert asyncio.run(assert_enqueued_async(app, send, order=1)) == [job]
    wrong: list[Any] = [{"args": (1, "bob")}, {"args": (1, "ann", 9)}, {"queue": "other"}, {"count": 3}]
    for wanted in wrong:
        args = wanted.pop("args", ())
        with pytest.raises(AssertionError):
            assert_enqueued(app, send, *args, **wanted)


def test_assert_enqueued_understands_other_ways_to_ask(app: Penstock) -> None:
    @app.task(name="shop.send")
    def send(order: int, copy: str = "") -> None: ...

    job = send.enqueue(1, "ann")
    send.enqueue(2)
    assert assert_enqueued(send, 1) == assert_enqueued(send, copy="ann", count=1) == [job]
    assert assert_enqueued(app, send, args=[1], kwargs={"copy": "ann"}) == [job]
    assert asyncio.run(assert_enqueued_async(send, 1)) == [job]
    with pytest.raises(AssertionError):
        assert_enqueued(send, args=(3,))
    for wrong in (5, None):
        with pytest.raises(ConfigurationError, match="give a task"):
            assert_enqueued(app, wrong)


def test_assert_enqueued_shows_what_there_was_instead(app: Penstock) -> None:
    @app.task(name="shop.send")
    def send(order: int, copy: str = "") -> None: ...

    with pytest.raises(AssertionError, match="there is no job of this task at all"):
        assert_enqueued(app, send)
    send.options(queue="mail").enqueue(1)
    with pytest.raises(AssertionError) as shown:
        assert_enqueued(app, send, 2, queue="post")
    assert str(shown.value).splitlines() == [
        "expected a job of shop.send, found 0:",
        "  wanted  (order=2, ...)  queue=post",
        '  other   (order=1, copy="")  queue=mail  available',
    ]
    with pytest.raises(AssertionError, match="expected 2 jobs of shop.send, found 1"):
        assert_enqueued(app, send, 1, count=2)
    send.enqueue_many([(n,) for n in range(30)])
    with pytest.raises(AssertionError, match="and 11 more"):
        assert_enqueued(app, send, 99)


def test_assert_enqueued_refuses_what_can_never_match(app: Penstock) -> None:
    @app.task(name="shop.send")
    def send(order: int) -> None: ...

    with pytest.raises(UnknownTask, match="shop.sent"):
        assert_enqueued(app, "shop.sent")
    with pytest.raises(ArgumentError, match="ordr"):
        assert_enqueued(app, send, ordr=1)
    with pytest.raises(ArgumentError):
        assert_enqueued(app, send, "one")
    with pytest.raises(ArgumentError):
        assert_enqueued(app, send, 1, 2)


def test_assert_enqueued_finds_runs_of_pipelines(app: Penstock) -> None:
    @app.task(name="shop.load")
    def load(days: int, of: str) -> int:
        return days

    @app.pipeline(name="shop.report")
    def report(days: int, of: str = "all") -> Any:
        return load(days, of)

    flow = app.flow("shop.flow").start(load)
    run, other = report.trigger(7), report.trigger(30, of="ann")
    assert assert_enqueued(app, report, 7) == assert_enqueued(report, days=7, of="all", count=1) == [run]
    assert assert_enqueued(app, "shop.report", of="ann") == [other]
    assert_enqueued(flow, count=0)
    drain(app)
    assert len(asyncio.run(assert_enqueued_async(app, report, count=2))) == 2
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(app, report, 8)
    for part in (
        "expected a run of shop.report, found 0",
        "(days=8, ...)",
        'other   (days=7, of="all")  succeeded',
    ):
        assert part in str(caught.value), part
    with pytest.raises(AssertionError, match="no run of this pipeline at all"):
        assert_enqueued(flow)
    with pytest.raises(ArgumentError):
        assert_enqueued(app, report, "eight")
