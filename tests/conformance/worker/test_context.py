"""context: what a handler can know and do by `penstock.current()`."""

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

import penstock
from penstock import Penstock, Retry
from penstock.errors import PenstockError, SerializationError
from penstock.runtime.worker import Worker
from penstock.testing import crash_at, drain
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import count
from tests.waiting import until


def test_outside_a_handler_there_is_no_current_job() -> None:
    with pytest.raises(PenstockError, match="no job is running here"):
        penstock.current()


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_a_handler_knows_its_job(app: Penstock, kind: str) -> None:
    def look() -> dict[str, Any]:
        job = penstock.current()
        names = ("id", "attempt", "retry_count", "crash_count", "recovered", "lease_lost", "cancel_requested")
        return {name: getattr(job, name) for name in names}

    @app.task(name="sync")
    def in_thread() -> dict[str, Any]:
        return look()

    @app.task(name="async")
    async def on_loop() -> dict[str, Any]:
        await asyncio.sleep(0)
        return look()

    job = app.tasks[kind].enqueue()
    drain(app)
    assert job.result(timeout=0) == {
        "id": job.id,
        "attempt": 1,
        "retry_count": 0,
        "crash_count": 0,
        "recovered": False,
        "lease_lost": False,
        "cancel_requested": False,
    }
    with pytest.raises(PenstockError):
        penstock.current()


def test_the_current_job_is_that_of_the_nested_call(app: Penstock) -> None:
    @app.task
    def outer() -> list[str]:
        def helper() -> str:
            return penstock.current().id

        return [helper(), penstock.current().task]

    job = outer.enqueue()
    drain(app)
    assert job.result(timeout=0) == [job.id, outer.name]


def test_the_fence_grows_and_the_idempotency_key_stays(app: Penstock) -> None:
    seen: list[tuple[int, str]] = []

    @app.task(retries=Retry(max=2, delay=0))
    def note() -> None:
        current = penstock.current()
        seen.append((current.fence, current.idempotency_key))
        raise ValueError

    job = note.enqueue()
    with crash_at("execute.after"):
        drain(app, limit=1)
    with crash_at("settle.commit"):
        drain(app)
    drain(app)
    assert job.retry()
    drain(app)
    fences = [fence for fence, _ in seen]
    assert fences == sorted(set(fences))
    assert len(fences) >= 6
    assert len({key for _, key in seen}) == 1


def test_recovered_tells_that_an_earlier_holder_died(app: Penstock) -> None:
    seen: list[tuple[bool, int, int]] = []

    @app.task
    def note() -> None:
        current = penstock.current()
        seen.append((current.recovered, current.crash_count, current.retry_count))

    job = note.enqueue()
    with crash_at("execute.after") as crash:
        drain(app)
    assert crash.crashed
    assert drain(app) == 1
    assert seen == [(False, 0, 0), (True, 1, 0)]
    assert [attempt.outcome for attempt in job.attempts()] == ["crashed", "succeeded"]


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_once_calls_once_and_returns_the_first_value_ever_after(app: Penstock, kind: str) -> None:
    charged: list[int] = []

    def charge(order: int, *, currency: str, name: str = "") -> dict[str, Any]:
        charged.append(order)
        return {"order": order, "currency": currency, "number": len(charged)}

    async def charge_async(order: int, *, currency: str, name: str = "") -> dict[str, Any]:
        await asyncio.sleep(0)
        return charge(order, currency=currency)

    @app.task(name="sync", retries=Retry(max=3, delay=0))
    def in_thread() -> Any:
        value = penstock.current().once("charge", charge, 7, currency="EUR", name="Ann")
        again = penstock.current().once("charge", charge, 8, currency="USD")
        assert value == again
        if penstock.current().attempt < 4:
            raise ConnectionError
        return value

    @app.task(name="async", retries=Retry(max=3, delay=0))
    async def on_loop() -> Any:
        value = await penstock.current().once("charge", charge_async, 7, currency="EUR", name="Ann")
        if penstock.current().attempt < 4:
            raise ConnectionError
        return value

    job = app.tasks[kind].enqueue()
    with crash_at("execute.after"):
        drain(app)
    drain(app)
    assert charged == [7]
    assert job.result(timeout=0) == {"order": 7, "currency": "EUR", "number": 1}


def test_markers_are_by_job_and_name(app: Penstock) -> None:
    made: list[str] = []

    def make(text: str) -> str:
        made.append(text)
        return text

    @app.task
    def note(text: str) -> list[str]:
        job = penstock.current()
        return [
            job.once("a", make, text + "a"),
            job.once("b", make, text + "b"),
            job.once("A", make, text + "A"),
        ]

    jobs = note.enqueue_many([("1",), ("2",)])
    drain(app)
    assert [job.result(timeout=0) for job in jobs] == [["1a", "1b", "1A"], ["2a", "2b", "2A"]]


def test_once_that_raises_is_not_remembered(app: Penstock) -> None:
    tries: list[int] = []

    def charge() -> str:
        tries.append(1)
        if len(tries) < 2:
            raise ConnectionError
        return "charged"

    @app.task(retries=Retry(max=1, delay=0))
    def pay() -> Any:
        return penstock.current().once("charge", charge)

    job = pay.enqueue()
    drain(app)
    assert job.result(timeout=0) == "charged"
    assert len(tries) == 2


def test_a_value_of_once_keeps_its_type(app: Penstock) -> None:
    seen: list[object] = []

    @app.task(retries=Retry(max=1, delay=0))
    def pay() -> None:
        seen.append(penstock.current().once("make", lambda: {"raw": b"\0\xff", "none": None}))
        seen.append(penstock.current().once("none", lambda: None))
        if penstock.current().attempt == 1:
            raise ConnectionError

    pay.enqueue()
    drain(app)
    assert seen == [{"raw": b"\0\xff", "none": None}, None] * 2


def test_once_refuses_what_it_cannot_remember(app: Penstock) -> None:
    @app.task(retries=0)
    def pay() -> None:
        penstock.current().once("make", object)

    job = pay.enqueue()
    drain(app)
    assert SerializationError.__name__ in str(job.attempts()[0].error)
    assert count(app, "markers") == 0


def test_progress_is_seen_from_outside(app: Penstock) -> None:
    @app.task
    def work() -> None:
        job = penstock.current()
        job.progress(0.4, "2 of 5 files")
        job.progress(7, "done\0")

    job = work.enqueue()
    assert job.progress() is None
    drain(app)
    fraction, message = job.progress() or (0.0, "")
    assert fraction == 1.0
    assert message == "done\u2400"


@pytest.mark.parametrize("wrong", ["half", None, [], float("nan"), 10**400])
def test_progress_that_is_no_number_is_refused_by_name(app: Penstock, wrong: object) -> None:
    said: list[str] = []

    @app.task(retries=0)
    def work() -> None:
        try:
            penstock.current().progress(wrong)  # type: ignore[arg-type]
        except PenstockError as error:
            said.append(str(error))

    work.enqueue()
    drain(app)
    assert "as a number from 0 to 1" in said[0]


def test_progress_in_letters_that_the_database_lacks_stops_no_other(
    app_on: Callable[..., Penstock], postgres_url: str
) -> None:
    url = make_url(postgres_url)
    latin = url.set(database=f"{url.database}_latin1")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {latin.database} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    app = app_on(latin.render_as_string(hide_password=False), heartbeat_interval=0.1)
    over = asyncio.Event()

    @app.task
    async def work(message: str) -> None:
        penstock.current().progress(0.5, message.replace("?", "\N{SNOWMAN}"))
        await over.wait()

    async def main(_: Worker) -> None:
        jobs = await work.enqueue_many_async([("a ?",), ("half",)])
        await until(lambda: all(job.progress() for job in jobs))
        assert [job.progress() for job in jobs] == [(0.5, "a \\u2603"), (0.5, "half")]
        cancelled = await work.enqueue_async("later")
        await until(lambda: cancelled.progress() == (0.5, "later"))
        await cancelled.cancel_async()
        await until(lambda: cancelled.status == "cancelled")
        over.set()

    beside_a_worker(app, main)
    app.close()


def test_a_name_that_cannot_be_remembered_is_refused(app: Penstock) -> None:
    names = {
        "": "give a text",
        "x" * 201: "at most 200",
        "a\0b": "at most 200",
        7: "give a text",
        "\ud800": "it holds half a",
    }

    @app.task(retries=0)
    def pay(number: int) -> None:
        penstock.current().once([*names][number], print)  # type: ignore[arg-type]

    jobs = pay.enqueue_many([(number,) for number in range(len(names))])
    drain(app)
    for job, problem in zip(jobs, names.values(), strict=True):
        assert f"its name: {problem}" in str(job.attempts()[0].error)
