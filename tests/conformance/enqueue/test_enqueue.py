"""task, queue/enqueue: Enqueue: a plain call stays a plain call; a job is durable when enqueue returns, and runs as
its options say.
"""

import asyncio
import functools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ConfigurationError, DefinitionError, PenstockError
from penstock.queue.enqueue import enqueue
from penstock.queue.jobs import NewJob
from penstock.testing import drain, travel
from penstock.values.ids import new_id
from tests.conformance.rows import counts, rows


def test_a_plain_call_stays_a_plain_call(app: Penstock) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    assert double(4) == 8
    assert counts(app)["jobs"] == 0


def test_a_plain_call_of_an_async_task_is_awaited_as_usual(app: Penstock) -> None:
    @app.task
    async def double(number: int) -> int:
        return number * 2

    assert asyncio.run(double(4)) == 8


def test_a_job_is_there_for_others_when_enqueue_returns(
    app: Penstock, make_app: Callable[..., Penstock]
) -> None:
    @app.task
    def double(number: int) -> int:
        return number * 2

    job = double.enqueue(4)
    assert make_app().job(job.id).status == "available"
    assert drain(app) == 1
    assert job.status == "succeeded"
    assert job.result(timeout=0) == 8


def test_the_async_door_does_the_same(app: Penstock) -> None:
    @app.task
    async def double(number: int) -> int:
        return number * 2

    job = asyncio.run(double.enqueue_async(number=4))
    assert drain(app) == 1
    assert asyncio.run(job.result_async(timeout=0)) == 8
    assert asyncio.run(job.status_async()) == "succeeded"


def test_larger_priorities_come_first_and_equals_in_order(app: Penstock) -> None:
    ran: list[str] = []

    @app.task
    def note(text: str) -> None:
        ran.append(text)

    note.enqueue("first of 0")
    note.options(priority=-5).enqueue("last")
    note.options(priority=10).enqueue("first of all")
    note.enqueue("second of 0")
    note.options(priority=3).enqueue("second of all")
    drain(app)
    assert ran == ["first of all", "second of all", "first of 0", "second of 0", "last"]


def test_the_queue_decides_who_runs_it(app: Penstock) -> None:
    @app.task(queue="mail")
    def send() -> None: ...

    mail, reports = send.enqueue(), send.options(queue="reports").enqueue()
    assert drain(app, queues="reports,other") == 1
    assert (mail.status, reports.status) == ("available", "succeeded")
    assert drain(app, queues=["mail:1"]) == 1
    assert mail.status == "succeeded"


def test_a_delayed_job_waits_for_the_database_clock(app: Penstock) -> None:
    @app.task
    def later() -> None: ...

    job = later.options(delay=60).enqueue()
    assert job.status == "scheduled"
    with travel(app, 59):
        assert drain(app) == 0
    with travel(app, 60):
        assert drain(app) == 1
    assert job.status == "succeeded"


def test_a_delay_is_seconds_or_a_timedelta(app: Penstock) -> None:
    @app.task
    def later() -> None: ...

    for delay in (timedelta(minutes=1), 60, 60.0):
        later.options(delay=delay).enqueue()
    with travel(app, 59):
        assert drain(app) == 0
    with travel(app, timedelta(minutes=1)):
        assert drain(app) == 3


def test_at_is_an_instant_by_the_database_clock(app: Penstock) -> None:
    @app.task
    def later() -> None: ...

    app.prepare()
    ((now,),) = rows(app, "SELECT {now}")
    at = datetime.fromtimestamp(now / 1_000_000, UTC) + timedelta(hours=1)
    job = later.options(at=at).enqueue()
    past = later.options(at=at - timedelta(days=1)).enqueue()
    assert drain(app) == 1
    assert (job.status, past.status) == ("scheduled", "succeeded")
    with travel(app, 3590):
        assert drain(app) == 0
    with travel(app, 3600):
        assert drain(app) == 1


def test_delayed_jobs_run_in_the_order_in_which_they_are_due(app: Penstock) -> None:
    ran: list[int] = []

    @app.task
    def note(number: int) -> None:
        ran.append(number)

    for seconds in (30, 10, 20):
        note.options(delay=seconds).enqueue(seconds)
    with travel(app, 40):
        drain(app)
    assert ran == [10, 20, 30]


def test_options_of_the_decorator_hold_unless_the_enqueue_says_otherwise(app: Penstock) -> None:
    @app.task(queue="mail", priority=7, delay=30)
    def send() -> None: ...

    send.enqueue()
    send.options(queue="post", delay=0).enqueue()
    stored = rows(app, "SELECT queue, priority FROM {jobs} ORDER BY queue")
    assert stored == [("mail", 7), ("post", 7)]
    assert drain(app) == 1


def test_options_leave_the_task_as_it_was(app: Penstock) -> None:
    @app.task
    def send() -> None: ...

    send.options(queue="mail").options(priority=2).enqueue()
    send.enqueue()
    assert sorted(rows(app, "SELECT queue, priority FROM {jobs}")) == [("default", 0), ("mail", 2)]


def test_a_name_is_stored_and_survives_renaming_the_function(app: Penstock) -> None:
    @app.task(name="shop.send")
    def old_name(order: int) -> int:
        return order

    job = old_name.enqueue(3)
    del app.tasks["shop.send"]

    @app.task(name="shop.send")
    def new_name(order: int) -> int:
        return order + 1

    drain(app)
    assert app.job(job.id).result(timeout=0) == 4


def test_two_tasks_cannot_have_one_name(app: Penstock) -> None:
    @app.task(name="send")
    def one() -> None: ...

    with pytest.raises(DefinitionError, match="two tasks named 'send'"):

        @app.task(name="send")
        def two() -> None: ...


def test_what_has_no_name_needs_one(app: Penstock) -> None:
    nameless = functools.partial(max, 3)
    with pytest.raises(DefinitionError, match=r"name="):
        app.task(nameless)
    with pytest.raises(DefinitionError, match="decorates functions"):
        app.task(7)  # type: ignore[call-overload]

    @app.task(name="most")
    def most() -> None: ...

    with pytest.raises(DefinitionError, match="two tasks named 'most'"):
        app.task(name="most")(nameless)


def test_a_name_too_long_for_some_database_is_refused_by_all(app: Penstock) -> None:
    def send() -> None: ...

    send.__qualname__ = "send" * 60
    with pytest.raises(DefinitionError, match="at most 200"):
        app.task(send)


def test_a_method_is_refused(app: Penstock) -> None:
    class Shop:
        @app.task
        def send(self) -> None: ...

    with pytest.raises(DefinitionError, match="plain function"):
        Shop().send.enqueue()  # type: ignore[call-arg]


def test_an_unknown_job_says_so(app: Penstock) -> None:
    app.prepare()
    with pytest.raises(PenstockError, match="there is no job"):
        _ = app.job("01900000-0000-7000-8000-000000000000").status


WRONG: list[Any] = [
    ({"prioritty": 1}, "there is no option 'prioritty'.*priority"),
    ({"queue": ""}, "queue=''"),
    ({"queue": "a b"}, "queue='a b'"),
    ({"queue": 7}, "queue=7"),
    ({"priority": "high"}, "priority='high': give a whole number"),
    ({"priority": 2**40}, "priority="),
    ({"delay": -1}, "delay=-1: give seconds"),
    ({"delay": float("nan")}, "delay=nan"),
    ({"delay": float("inf")}, "delay=inf"),
    ({"delay": "soon"}, "delay='soon'"),
    ({"delay": 10**400}, "no more than a hundred years"),
    ({"timeout": 1e300}, "no more than a hundred years"),
    ({"name": "x" * 201}, "at most 200"),
    ({"at": "tomorrow"}, "at='tomorrow': give a datetime with a time zone"),
    ({"at": datetime(2030, 1, 1)}, "has no time zone"),
    ({"at": datetime(2030, 1, 1, tzinfo=UTC), "delay": 5}, "not both"),
    ({"retries": "many"}, "retries='many'"),
    ({"retries": -1}, "max=-1"),
    ({"retries": True}, "retries=True"),
    ({"max_crashes": -1}, "max_crashes=-1"),
    ({"timeout": 0}, "timeout=0"),
    ({"executor": "fiber"}, "executor='fiber': give one of async, thread, process"),
    ({"key": ""}, "key=''"),
    ({"key": "x" * 256}, "at most 255"),
    ({"key": "a\0b"}, "no NUL"),
]


def test_wrong_options_are_refused_by_name_and_leave_no_row(app: Penstock) -> None:
    @app.task
    def send() -> None: ...

    app.prepare()
    for options, message in WRONG:
        with pytest.raises(ConfigurationError, match=message):
            send.options(**options).enqueue()
        with pytest.raises(ConfigurationError, match=message):
            app.task(**options)(send.function)
    assert counts(app)["jobs"] == 0


def test_an_enqueue_may_use_another_name(app: Penstock) -> None:
    @app.task
    def old(number: int) -> int:
        return number

    @app.task(name="new")
    def new(number: int) -> int:
        return -number

    jobs = [old.options(name=name).enqueue(4) for name in ("new", "newest")]
    assert rows(app, "SELECT task FROM {jobs} ORDER BY id") == [("new",), ("newest",)]
    assert drain(app) == 2
    assert [job.result(timeout=0) for job in jobs] == [-4, 4]


def test_none_leaves_an_option_as_it_is_or_takes_it_away(app: Penstock) -> None:
    @app.task(queue="mail", priority=3, timeout=0.01, name=None)
    async def slow() -> str:
        await asyncio.sleep(0.05)
        return "done"

    job = slow.options(queue=None, priority=None, delay=None, timeout=None).enqueue()
    assert rows(app, "SELECT queue, priority FROM {jobs}") == [("mail", 3)]
    drain(app)
    assert job.result(timeout=0) == "done"


def test_jobs_that_differ_in_their_options_are_written_together(app: Penstock) -> None:
    """Each keeps its own, or none, and they stand in the order in which they were given."""
    app.prepare()
    told = [None, '{"labels":["it\'s"]}', None, '{"labels":["ü\\\\"]}']
    for delay in (0.0, 60.0):
        news = [NewJob(new_id(), "t", "default", 0, "{}", options, delay=delay) for options in told]
        app.database.in_transaction(enqueue, news)
        found = rows(app, "SELECT id, options FROM {jobs} ORDER BY id")
        assert [(str(id), options) for id, options in found][-4:] == [(new.id, new.options) for new in news]
    assert counts(app)["jobs"] == 8
