"""queue/wakeups: Wake-ups: other processes hear of new work and of results where the database can tell; elsewhere
they poll.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from penstock import Penstock
from penstock.database.transaction import Transaction
from penstock.queue import wakeups
from penstock.queue.wakeup_targets import Needs
from penstock.runtime.worker import Worker
from penstock.testing import drain
from tests.conformance.embedded import beside_a_worker
from tests.waiting import eventually, pass_time, until

SILENT = {
    "poll_interval": 3600,
    "sweep_interval": 3600,
    "result_poll_interval": 3600,
    "housekeeping_interval": 3600,
}
HEARS = ["sqlite_url", "postgres_url"]


@pytest.fixture(params=HEARS)
def url(request: pytest.FixtureRequest) -> str:
    """Databases that tell other processes: NOTIFY, or the file that every commit touches."""
    return str(request.getfixturevalue(request.param))


def two_apps(app_on: Callable[..., Penstock], url: str) -> tuple[Penstock, Penstock]:
    """As in two processes: they share nothing but the database."""
    apps = app_on(url, **SILENT), app_on(url, **SILENT)
    for app in apps:

        @app.task(name="note")
        async def note(number: int) -> int:
            return number * 2

        app.prepare()
    return apps


async def idle(worker: Worker) -> None:
    await until(lambda: worker.pump._empty_turns > 0)


def test_a_worker_hears_of_work_enqueued_elsewhere(app_on: Callable[..., Penstock], url: str) -> None:
    producer, consumer = two_apps(app_on, url)

    async def main(worker: Worker) -> None:
        await idle(worker)
        for number in range(3):
            job = await producer.tasks["note"].enqueue_async(number)
            await until(lambda job=job: job.status == "succeeded")  # type: ignore[misc]

    beside_a_worker(consumer, main)


def test_a_worker_hears_of_work_committed_by_a_callers_transaction(
    app_on: Callable[..., Penstock], url: str
) -> None:
    producer, consumer = two_apps(app_on, url)
    made = make_url(url)
    driver = "postgresql+psycopg" if made.get_backend_name() == "postgresql" else "sqlite"
    engine = create_engine(made.set(drivername=driver))

    async def main(worker: Worker) -> None:
        await idle(worker)
        with Session(engine) as session:
            job = producer.tasks["note"].options(connection=session).enqueue(4)
            session.commit()
        await until(lambda: job.status == "succeeded")

    beside_a_worker(consumer, main)
    engine.dispose()


def test_one_commit_notifies_at_a_time_and_the_others_tell_a_moment_later(
    app_on: Callable[..., Penstock], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, consumer = two_apps(app_on, postgres_url)
    note = producer.tasks["note"]
    sent: list[str] = []
    send_soon = producer.wakeups._send_soon

    def sending(subject: str, needs: Needs) -> None:
        sent.append(subject)
        send_soon(subject, needs)

    monkeypatch.setattr(producer.wakeups, "_send_soon", sending)

    async def main(worker: Worker) -> None:
        await idle(worker)
        job = await note.enqueue_async(1)
        await until(lambda: job.status == "succeeded", 20)
        assert not sent, "it was told with the commit itself"
        with psycopg.connect(postgres_url) as another:
            another.execute(f"SELECT pg_advisory_xact_lock({wakeups.TURN})")
            job = await note.enqueue_async(2)
            await until(lambda: job.status == "succeeded", 20)
            assert sent

    beside_a_worker(consumer, main)


def test_who_waits_hears_of_a_result_settled_elsewhere(
    app_on: Callable[..., Penstock], postgres_url: str
) -> None:
    producer, consumer = two_apps(app_on, postgres_url)
    job = producer.tasks["note"].enqueue(4)
    found: list[int] = []
    waiter = threading.Thread(target=lambda: found.append(job.result(timeout=60)))
    waiter.start()
    drain(consumer)
    waiter.join(30)
    assert found == [8]


def test_without_wake_ups_polling_finds_everything(make_app: Callable[..., Penstock]) -> None:
    quiet = {"listen": False, "notify": False, "poll_interval": 0.05, "result_poll_interval": 0.05}
    producer, consumer = make_app(**quiet), make_app(**quiet)
    for app in (producer, consumer):

        @app.task(name="note")
        async def note(number: int) -> int:
            return number * 2

    async def main(worker: Worker) -> list[int]:
        await idle(worker)
        jobs = [await producer.tasks["note"].enqueue_async(number) for number in range(3)]
        return [await job.result_async(timeout=30) for job in jobs]

    assert beside_a_worker(consumer, main) == [0, 2, 4]


def test_an_idle_worker_costs_a_few_statements_a_second_at_most(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    plain = app.database.on

    def counting(driver: object) -> Transaction:
        opened.append(threading.current_thread().name)
        return plain(driver)

    @app.task
    def note() -> None: ...

    async def main(worker: Worker) -> float:
        await until(lambda: worker.pump._empty_turns > 8)
        began = time.monotonic()
        monkeypatch.setattr(app.database, "on", counting)
        await asyncio.sleep(1.0)  # what is measured is a second of doing nothing, or how long that has become
        monkeypatch.setattr(app.database, "on", plain)
        return time.monotonic() - began

    seconds = beside_a_worker(app, main)
    assert len(opened) <= 12 * seconds, opened


def test_what_is_told_just_when_the_sender_has_waited_in_vain_is_sent(
    app_on: Callable[..., Penstock], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "QUIET", 1.0)
    ours = app_on(postgres_url).wakeups
    ours.notify("ended\tfirst")
    eventually(lambda: ours._news._waiters)  # type: ignore[attr-defined]
    with ours._news:
        pass_time(1.2)  # its wait is over, and it does not know yet
        ours.notify("ended\tsecond")
    eventually(lambda: not ours._pending)


def test_a_waiter_in_a_loop_that_was_closed_disturbs_no_other(make_app: Callable[..., Penstock]) -> None:
    """What it raised came out of the worker that had settled a job, after the commit: what was claimed with that was
    lost."""
    app = make_app(result_poll_interval=3600)

    @app.task
    def note(number: int) -> int:
        return number * 2

    job, other = note.enqueue(4), note.enqueue(5)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(job.result_async())

    def waits() -> bool:
        heard_by: list[Any] = app.wakeups._listeners
        return any(heard.__self__.waker is not None for heard in heard_by)

    loop.run_until_complete(until(waits))
    loop.close()
    assert drain(app) == 2
    assert not waiting.done()
    assert (job.result(timeout=0), other.result(timeout=0)) == (8, 10)


def test_who_is_told_of_the_next_job_does_not_look_for_it_right_after_the_last(
    app_on: Callable[..., Penstock], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look that is under way when the next job comes keeps it waiting: those were the slow ones of a hundred."""
    app = app_on(postgres_url)

    @app.task
    async def note() -> None: ...

    async def main(worker: Worker) -> None:
        await until(lambda: worker.rest.is_told)
        claimed: list[float] = []
        looked: list[float] = []
        plain = worker.source.claim

        def counting(*args: Any) -> list[Any]:
            began = time.monotonic()
            found = plain(*args)
            (claimed if found else looked).append(time.monotonic() if found else began)
            return found

        monkeypatch.setattr(worker.source, "claim", counting)

        async def one_job() -> bool:
            claimed.clear()
            looked.clear()
            job = await note.enqueue_async()
            await until(lambda: job.status == "succeeded")
            settled = time.monotonic()
            await until(lambda: time.monotonic() > settled + 1)
            # A claim that was under way when it was replaced is not counted: such a job says nothing.
            if not claimed:
                return False
            # The look that goes with the settle comes right after the job; the next one only after a pause.
            soon = [moment for moment in looked if moment < claimed[-1] + 0.2]
            return len(soon) <= 1 and not [moment for moment in soon if moment > settled]

        # The notification of a job may be heard after the job is done, which is one more look: the best of ten.
        for _ in range(10):
            if await one_job():
                return
        raise AssertionError("it looks again right after every job")

    beside_a_worker(app, main)


def test_the_sender_says_what_it_has_to_and_ends_with_its_app(
    app_on: Callable[..., Penstock], postgres_url: str
) -> None:
    """Also where the app is used again."""
    app = app_on(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as listener:
        listener.execute(f"LISTEN {app.wakeups.channel_of(wakeups.CONTROLS)}")
        for _ in range(2):
            app.wakeups.notify(wakeups.CONTROLS)
            sender = app.wakeups._sender
            app.close()
            assert sender is not None
            assert not sender.is_alive()
            assert [told.payload for told in listener.notifies(timeout=5, stop_after=1)] == [wakeups.CONTROLS]
