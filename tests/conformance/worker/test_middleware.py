"""middleware: Middleware around handlers and enqueues: on the loop, in threads and in processes, and in the hands of
tests.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from penstock import Cancel, Penstock, Snooze, current
from penstock.errors import ConfigurationError, DefinitionError
from penstock.middleware import HandlerCall, Publication
from penstock.runtime.worker import Worker
from penstock.testing import drain, drain_async, inline
from tests.conformance.embedded import beside_a_worker
from tests.waiting import until

WHO: ContextVar[str] = ContextVar("who", default="")
TENANT: ContextVar[str | None] = ContextVar("tenant", default=None)


def test_around_every_kind_of_handler(shop: Any) -> None:
    """One sync and one async middleware, around handlers on the loop, in threads and in processes."""

    @shop.app.enqueue_middleware
    def tenancy(publication: Publication) -> Iterator[None]:
        publication.headers["tenant"] = "acme"
        yield

    async def main(_: Worker) -> None:
        tasks = (shop.tell_loop, shop.tell_thread, shop.tell_process)
        good = [await task.enqueue_async(7) for task in tasks]
        bad = [await task.enqueue_async(0) for task in tasks]
        found = [await job.result_async(timeout=60) for job in good]
        assert found == [
            "acme, twice (tell_loop, attempt 1, {'number': 7})",
            "acme, twice (tell_thread, attempt 1, {'number': 7})",
            "acme, twice in a process (tell_process, attempt 1, {'number': 7})",
        ]
        for job in bad:
            await until(lambda job=job: job.status == "failed")  # type: ignore[misc]
            (attempt,) = job.attempts()
            assert attempt.error == "ValueError: translated"
            assert "LookupError: nothing" in attempt.traceback
            assert 'raise LookupError("nothing")' in attempt.traceback
        assert (shop.TENANT.get(), len(shop.TENANT.get())) == ("", 0)

    beside_a_worker(shop.app, main)


@pytest.mark.one_database
def test_a_middleware_that_a_fresh_process_does_not_find_is_never_left_out(shop: Any) -> None:
    @shop.app.middleware
    def only_here(call: HandlerCall) -> Iterator[None]:
        yield

    async def main(_: Worker) -> None:
        job = await shop.render.options(retries=0).enqueue_async(1)
        await until(lambda: job.status == "failed")
        assert "only_here is not found" in (job.attempts()[0].error or "")

    beside_a_worker(shop.app, main)


def test_in_order_with_the_outcome_in_hand(app: Penstock) -> None:
    seen: list[Any] = []

    @app.middleware
    def outer(call: HandlerCall) -> Iterator[None]:
        seen.append(("outer", call.task, call.queue, call.attempt, call.arguments, call.job is current()))
        yield
        seen.append(("outer", call.result, call.error))

    async def inner(call: HandlerCall) -> AsyncIterator[None]:
        seen.append("inner")
        try:
            yield
        except KeyError:
            seen.append(("inner", type(call.error)))
            call.result = Snooze(60) if call.arguments["number"] == 2 else Cancel("not wanted")

    @app.task(name="work", queue="q", middleware=[inner])
    def work(number: int, twice: bool = False) -> int:
        if number > 1:
            raise KeyError(number)
        return number

    assert app.middleware(outer) is outer
    app.middlewares = app.middlewares[:1]
    jobs = [work.enqueue(1, twice=True), work.enqueue(2), work.enqueue(3)]
    with pytest.raises(ConfigurationError, match=r"middleware= belongs to @app\.task"):
        work.options(middleware=[])  # type: ignore[call-arg]
    drain(app)
    assert [job.status for job in jobs] == ["succeeded", "scheduled", "cancelled"]
    assert seen[:3] == [
        ("outer", "work", "q", 1, {"number": 1, "twice": True}, True),
        "inner",
        ("outer", 1, None),
    ]
    assert ("inner", KeyError) in seen
    assert seen[-1] == ("outer", Cancel("not wanted"), None)


def test_what_a_middleware_does_is_its_jobs_error_and_no_place_is_lost(app: Penstock) -> None:
    """Those that raise before and after, end early, yield twice, exit, or leave the handler out."""

    @app.middleware
    def hostile(call: HandlerCall) -> Iterator[None]:
        match call.arguments["kind"]:
            case "before":
                raise ValueError("before")
            case "early":
                return
            case "exit":
                raise SystemExit(3)
            case "instead":
                call.result = "not called"
                return
        yield
        if call.arguments["kind"] == "after":
            raise ValueError("after")
        if call.arguments["kind"] == "twice":
            yield

    async def hostile_async(call: HandlerCall) -> AsyncIterator[None]:
        yield
        if call.arguments["kind"] == "cancel":
            raise asyncio.CancelledError

    @app.task(name="on_loop", retries=0, middleware=[hostile_async])
    async def on_loop(kind: str) -> str:
        return kind

    @app.task(name="in_thread", retries=0, middleware=[hostile_async])
    def in_thread(kind: str) -> str:
        return kind

    expected = {
        "before": "ValueError: before",
        "after": "ValueError: after",
        "early": "ended without a `yield`",
        "twice": "second `yield`",
        "exit": "SystemExit: 3",
        "cancel": "CancelledError",
    }

    async def main(worker: Worker) -> None:
        for task in (on_loop, in_thread):
            jobs = {kind: await task.enqueue_async(kind) for kind in expected}
            for kind, job in jobs.items():
                await until(lambda job=job: job.status == "failed")  # type: ignore[misc]
                assert expected[kind] in (job.attempts()[0].error or "")
            assert await (await task.enqueue_async("good")).result_async(timeout=60) == "good"
            assert await (await task.enqueue_async("instead")).result_async(timeout=60) == "not called"
        await until(lambda: worker.dispatcher.busy == 0 and worker.dispatcher.overdue == 0)

    beside_a_worker(app, main, concurrency=2)


def test_arguments_that_cannot_be_read_are_an_error_that_middleware_sees(app: Penstock) -> None:
    seen: list[Any] = []

    @app.middleware
    def watching(call: HandlerCall) -> Iterator[None]:
        try:
            yield
        finally:
            seen.append((call.arguments, type(call.error).__name__))

    @app.task(name="work", retries=0)
    def work(number: int) -> int:
        return number

    job = work.enqueue(1)
    with app.database.engine.begin() as connection:
        (jobs,) = [table for table in app.metadata.sorted_tables if table.name.endswith("penstock_jobs")]
        connection.execute(jobs.update().values(payload='[["x"], {}]'))
    drain(app)
    assert (job.status, seen) == ("failed", [({}, "UnreadArguments")])
    assert job.id in [letter.id for letter in app.dead_letters()]
    assert "stored arguments" in (job.attempts()[0].error or "")


def test_drain_and_inline_run_it_too(app: Penstock) -> None:
    @app.middleware
    async def who(call: HandlerCall) -> AsyncIterator[None]:
        WHO.set(call.task)
        yield

    @app.task(name="on_loop")
    async def on_loop() -> str:
        return WHO.get()

    @app.task(name="in_thread")
    def in_thread() -> str:
        return WHO.get()

    with inline(app):
        assert (on_loop.enqueue().result(), in_thread.enqueue().result()) == ("on_loop", "in_thread")

    async def main() -> list[str]:
        jobs = [await on_loop.enqueue_async(), await in_thread.enqueue_async()]
        await drain_async(app)
        return [await job.result_async() for job in jobs]

    assert asyncio.run(main()) == ["on_loop", "in_thread"]
    assert WHO.get() == ""


def test_a_timeout_counts_for_the_middleware_too(app: Penstock) -> None:
    @app.middleware
    async def slow(call: HandlerCall) -> AsyncIterator[None]:
        yield
        await asyncio.sleep(600)

    @app.task(name="work", timeout=0.05, retries=0)
    async def work() -> None: ...

    async def main(_: Worker) -> None:
        job = await work.enqueue_async()
        await until(lambda: job.status == "failed")
        assert [attempt.outcome for attempt in job.attempts()] == ["timed_out"]

    beside_a_worker(app, main)


def test_headers_reach_handlers_by_every_way_of_enqueueing(app: Penstock, database_url: str) -> None:
    published: list[tuple[str, str, int, bool, int]] = []
    seen: list[tuple[str, str | None]] = []

    @app.enqueue_middleware
    def tenancy(publication: Publication) -> Iterator[None]:
        if (tenant := TENANT.get()) is not None:
            publication.headers["tenant"] = tenant
        yield
        told = (publication.kind, publication.name, publication.count, publication.in_transaction)
        published.append((*told, len(publication.ids)))

    @app.middleware
    def tenant(call: HandlerCall) -> Iterator[None]:
        seen.append((call.task, call.headers.get("tenant")))
        yield

    @app.task(name="work", timeout=30)
    def work(number: int) -> int:
        return number

    @app.task(name="ended")
    def ended(run: Any) -> None: ...

    @app.pipeline(name="child")
    def child(number: int) -> Any:
        return work(number)

    @app.pipeline(name="parent", on_success=ended)
    def parent(number: int) -> Any:
        return work.options(timeout=20)(child(work(number)))

    TENANT.set("acme")
    job = work.enqueue(1)
    work.options(retries=0, delay=0).enqueue(2)
    work.enqueue_many([(3,), (4,)])
    asyncio.run(work.enqueue_async(5))
    run = parent.trigger(6)
    run.context["mine"] = 1
    with app.database.engine.begin() as connection:
        work.options(connection=connection).enqueue(7)
        parent.options(connection=connection).trigger(8)
    job.then(work, 9)
    asyncio.run(job.then_async(work, 10))
    run.then([work, (child, 11)], 12).then(work, 13)
    app.after([run, child.trigger(14)]).then(child, 15)
    TENANT.set(None)
    drain(app)
    run.rerun()
    drain(app)
    assert {who for _, who in seen} == {"acme"}
    assert len(seen) == 6 + 2 * 4 + 2 + 3 + 2 + 4
    assert ("ended", "acme") in seen
    assert list(run.context) == ["mine"]
    assert published == [
        ("job", "work", 1, False, 1),
        ("job", "work", 1, False, 1),
        ("job", "work", 2, False, 2),
        ("job", "work", 1, False, 1),
        ("run", "parent", 1, False, 1),
        ("job", "work", 1, True, 1),
        ("run", "parent", 1, True, 1),
        ("job", "work", 1, False, 1),
        ("job", "work", 1, False, 1),
        ("run", "child", 1, False, 1),
        ("run", "then.work", 1, False, 1),
        ("run", "then.work", 1, False, 1),
        ("run", "child", 1, False, 1),
        ("run", "child", 1, False, 1),
    ]


def test_an_enqueue_middleware_cannot_make_a_failure_look_like_a_success(app: Penstock) -> None:
    @app.enqueue_middleware
    def keeps_it(publication: Publication) -> Iterator[None]:
        try:
            yield
        except Exception:
            return

    @app.task(name="work")
    def work() -> None: ...

    with pytest.raises(ConfigurationError, match="connection"):
        work.options(connection=object()).enqueue()


@pytest.mark.parametrize("given", [lambda _: None, 7, print], ids=["function", "number", "builtin"])
def test_what_is_no_middleware_is_refused(app: Penstock, given: Any) -> None:
    with pytest.raises(DefinitionError, match="generator function"):
        app.middleware(given)
    with pytest.raises(DefinitionError, match="generator function"):
        app.enqueue_middleware(given)
    with pytest.raises((ConfigurationError, DefinitionError), match="middleware|generator function"):
        app.task(name="other", middleware=[given])(lambda: None)
    with pytest.raises(ConfigurationError, match="give a list"):
        app.task(name="other", middleware=given)(lambda: None)
