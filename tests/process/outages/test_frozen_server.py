"""database/server_probe: the primary freezes, it does not die: its machine acknowledges everything and answers
nothing. Another takes over.

Nothing but the silence tells of it. Workers and producers are where the new primary is in about the time that their
cluster takes, whatever their own statements may take.
"""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from penstock import Penstock
from penstock.database import mysql_connection, server_probe
from penstock.database.postgres import pipeline
from penstock.errors import DatabaseUnavailable
from tests.chaos.standby import Pair
from tests.conformance.wakeups.test_silent_connections import way_to
from tests.process.history import done
from tests.process.programs import start_worker
from tests.process.scenes import make_app
from tests.servers.mariadb import Mariadb
from tests.servers.server import Server
from tests.waiting import eventually
from tests.workers import Workers

pytestmark = pytest.mark.process

AppOn = Callable[..., Penstock]
BOUND = 30.0
"""Seconds until all goes on: a silence is noticed, a question is asked, and each host gets its share of a connect."""
WORKS: dict[str, Any] = {"statement_timeout": 60, "lock_timeout": 30, "connect_timeout": 6}
"""By these alone no worker would notice within four minutes."""


def tree(pid: int) -> list[int]:
    told = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout
    return [pid, *map(int, told.split())]


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """All processes of a server, as when its machine stands still."""
    stopped = tree(server.process_id)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                continue


class Producer:
    """Enqueues one job after the other, and says when one took long."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.over = threading.Event()
        self.last = time.monotonic()
        self.longest = 0.0
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Producer":
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _run(self) -> None:
        while not self.over.wait(0.05):
            try:
                self.app.tasks["double"].enqueue(1)
            except DatabaseUnavailable:
                continue
            self.longest = max(self.longest, time.monotonic() - self.last)
            self.last = time.monotonic()


def test_a_postgres_that_freezes_is_left(pair: Pair, workers_on: Callable[[str], Workers]) -> None:
    pair.primary.create_database("shop")
    pair.follow()
    app = make_app(pair.url("shop"), **WORKS)
    app.prepare()
    settings = {f"PENSTOCK_{name.upper()}": str(value) for name, value in WORKS.items()}
    worker = start_worker(workers_on(pair.url("shop")), env=settings)
    try:
        with Producer(app) as producer:
            eventually(lambda: done(app) > 5)
            with frozen(pair.primary):
                began = time.monotonic()
                promote(pair)
                eventually(lambda: producer.last > began + 1, 100)
                job = app.tasks["double"].enqueue(4)
                assert job.result(timeout=BOUND) == 8
        assert producer.longest < BOUND
        assert worker.stop() == 0
    finally:
        app.close()


def promote(pair: Pair) -> None:
    standby = pair.standby
    assert standby is not None
    with psycopg.connect(standby.url("postgres"), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        connection.execute("SELECT pg_promote()")


def test_a_mariadb_that_freezes_is_left(app_on: AppOn, mariadb_url: str, mariadb_server: Mariadb) -> None:
    """Two servers that know nothing of each other: what was in the first is another's to bring over."""
    name = str(make_url(mariadb_url).database)
    mariadb_server.create_database(name)
    there = make_url(mariadb_url)
    app_on(mariadb_server.url(name)).migrate()
    url = f"mysql://{there.username}@127.0.0.1:{mariadb_server.port},{there.host}:{there.port}/{name}"
    app = make_app(url, **WORKS)
    app.prepare()
    try:
        with Producer(app) as producer:
            eventually(lambda: producer.longest > 0)
            with frozen(mariadb_server):
                began = time.monotonic()
                eventually(lambda: producer.last > began + 1, 100)
        assert producer.longest < BOUND
    finally:
        app.close()


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_who_is_at_work_is_waited_for(
    app_on: AppOn, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A statement that takes longer than the silence after which one asks."""
    for module in (server_probe, pipeline, mysql_connection):
        monkeypatch.setattr(module, "SILENCE", 0.2)
    asked: list[object] = []
    is_at_work = server_probe.Probe.is_at_work

    def look(self: server_probe.Probe, session: Hashable) -> bool:
        asked.append(session)
        return is_at_work(self, session)

    monkeypatch.setattr(server_probe.Probe, "is_at_work", look)
    url = request.getfixturevalue(f"{kind}_url")
    database = app_on(url).database
    sleep = "SELECT pg_sleep(1.5)" if kind == "postgres" else "SELECT SLEEP(1.5)"
    with database.transaction() as tx:
        pid = tx.row("SELECT pg_backend_pid()" if kind == "postgres" else "SELECT CONNECTION_ID()")
        tx.rows(sleep)
        again = tx.row("SELECT pg_backend_pid()" if kind == "postgres" else "SELECT CONNECTION_ID()")
    assert pid == again
    assert len(asked) >= 3
    with database.engine.connect() as connection:
        connection.exec_driver_sql(sleep)


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_an_answer_that_was_lost_on_the_way_is_not_waited_for(
    app_on: AppOn, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """The server has nothing to do for us, as it says itself: it has answered, or was never asked."""
    for module in (server_probe, pipeline, mysql_connection):
        monkeypatch.setattr(module, "SILENCE", 0.2)
    with way_to(request.getfixturevalue(f"{kind}_url")) as (way, there):
        app = app_on(there, **WORKS)

        @app.task
        def double(number: int) -> int:
            return number * 2

        double.enqueue(1)
        way.strand()
        began = time.monotonic()
        assert double.enqueue(2).status == "available"
        assert time.monotonic() - began < BOUND
        way.wash_up()
        app.close()
