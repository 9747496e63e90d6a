"""database/listeners, database/postgres/pipeline: Connections on which nothing is heard any more, though they are
open: a proxy that keeps everything to itself.

No process waits for ever for an answer; and one that must be heard of gives up before others give it up.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
from sqlalchemy import literal, make_url, select

from penstock import Penstock
from penstock.database import listeners
from penstock.database.listeners import NotifyListener
from penstock.database.postgres.pipeline import TimeLimitedConnection
from penstock.database.transaction import Transaction
from penstock.database.user.statements import Statements
from penstock.queue import reclaim
from penstock.runtime.worker import Worker
from penstock.telemetry.events import TroubleEnded
from penstock.values.ids import new_id
from tests.chaos.proxy import Network, Proxy
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import rows
from tests.waiting import until

AppOn = Callable[..., Penstock]
SOON = 30.0
IMPATIENT = {"statement_timeout": 0.25, "lock_timeout": 0.25}
"""An answer is waited for a second."""


@contextmanager
def way_to(url: str) -> Iterator[tuple[Proxy, str]]:
    """A proxy before the server, and the URL that leads through it."""
    port = make_url(url).port
    assert port is not None
    network = Network()
    proxy = Proxy(network, port)
    yield proxy, make_url(url).set(port=proxy.port).render_as_string(hide_password=False)
    proxy.close()
    network.close()


@pytest.mark.parametrize("pooler", ["none", "transaction"])
def test_on_postgres_a_heartbeat_is_heard_in_time(app_on: AppOn, postgres_url: str, pooler: str) -> None:
    _check_that_it_is_heard(app_on, postgres_url, pooler=pooler)


def test_on_mariadb_a_heartbeat_is_heard_in_time(app_on: AppOn, mariadb_url: str) -> None:
    _check_that_it_is_heard(app_on, mariadb_url)


def _check_that_it_is_heard(app_on: AppOn, url: str, **settings: object) -> None:
    """All others may wait for a minute, and do."""
    client, silence, goes_on = app_on(url), 3.0, asyncio.Event()

    async def wait() -> int:
        await goes_on.wait()
        return 5

    client.task(name="wait")(wait)
    with way_to(url) as (way, there):
        patient = {"statement_timeout": 60, "lock_timeout": 60}
        app = app_on(there, reap_after=silence, heartbeat_interval=0.3, **patient, **settings)
        app.task(name="wait")(wait)

        async def main(worker: Worker) -> None:
            job = await client.tasks["wait"].enqueue_async()
            await until(lambda: job.status == "running")
            way.strand()
            last = _heard_at(client, worker)
            try:
                await until(
                    lambda: _reaps_nobody(client, silence) and _heard_at(client, worker) - last > silence,
                    SOON,
                )
            finally:
                way.wash_up()
            goes_on.set()
            assert await job.result_async(SOON) == 5
            assert len(job.attempts()) == 1

        beside_a_worker(app, main)
        app.close()


def test_behind_a_pooler_the_pump_goes_on(app_on: AppOn, postgres_url: str) -> None:
    client, over = app_on(postgres_url), Counter[str]()

    async def note(number: int) -> int:
        return number * 2

    client.task(name="note")(note)
    with way_to(postgres_url) as (way, there):
        app = app_on(there, pooler="transaction", poll_interval=0.1, **IMPATIENT)
        app.task(name="note")(note)
        app.events.on(TroubleEnded, lambda event: over.update([event.loop]))

        async def main(worker: Worker) -> None:
            first = await client.tasks["note"].enqueue_async(2)
            assert await first.result_async(SOON) == 4  # now it is connected
            way.strand()
            try:
                await until(lambda: over[worker.pump.name], SOON)
            finally:
                way.wash_up()
            job = await client.tasks["note"].enqueue_async(4)
            assert await job.result_async(SOON) == 8

        beside_a_worker(app, main)
        app.close()


@pytest.mark.parametrize("pooler", ["none", "transaction"])
def test_where_sqlalchemy_speaks_for_us_no_caller_waits_for_ever(
    app_on: AppOn, postgres_url: str, pooler: str
) -> None:
    with way_to(postgres_url) as (way, there):
        database = app_on(there, pooler=pooler, **IMPATIENT).database

        def ask(tx: Transaction) -> None:
            statements = Statements(database, tx)
            assert statements.rows(select(literal(4))) == [(4,)]
            way.strand()
            statements.rows(select(literal(5)))

        with (
            pytest.raises(psycopg.OperationalError, match="no answer from the database for 1 s") as given_up,
            database.transaction() as tx,
        ):
            ask(tx)
        assert database.dialect.is_disconnect(given_up.value)
        assert database.read(lambda tx: tx.rows("SELECT 6")) == [(6,)], "on another connection"
        database.close()


def test_what_users_execute_is_theirs_to_limit(app_on: AppOn, postgres_url: str) -> None:
    """Also on a connection that was ours before."""
    database = app_on(postgres_url, pooler="transaction", pool_size=1, **IMPATIENT).database
    database.connections.go_through_sqlalchemy()

    ours = database.in_transaction(lambda tx: tx.rows("SELECT pg_backend_pid()"))
    with database.engine.begin() as connection:
        slow = connection.exec_driver_sql("SELECT pg_backend_pid() FROM pg_sleep(1.5)")
        assert slow.all() == ours


def test_the_listener_gives_up_and_tries_again(
    app_on: AppOn, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "GIVEN_UP_AFTER", 500)
    connect = TimeLimitedConnection.connect
    with (
        way_to(postgres_url) as (way, there),
        closing(NotifyListener(app_on(there, connect_timeout=2).database, "news")) as ear,
    ):

        def connect_and_strand(**arguments: object) -> TimeLimitedConnection:
            connection = connect(**arguments)  # type: ignore[arg-type]
            way.strand()
            return connection

        wake, _ = ends = os.pipe()
        with monkeypatch.context() as patch:
            patch.setattr(TimeLimitedConnection, "connect", connect_and_strand)
            assert ear.wait(wake, 0.1) == ["reconnect"]
        assert not ear.connected
        ear.tried = -listeners.RECONNECT_AFTER
        assert ear.wait(wake, 0.1) == []
        assert ear.connected
        for end in ends:
            os.close(end)


def _heard_at(client: Penstock, worker: Worker) -> float:
    """By the database's clock, in seconds."""
    sql = "SELECT heartbeat_at FROM {processes} WHERE id = :id"
    ((micros,),) = rows(client, sql, id=worker.identity.id)
    return float(micros) / 1_000_000


def _reaps_nobody(client: Penstock, silence: float) -> bool:
    assert not client.database.in_transaction(reclaim.reap_silent, silence, new_id())
    return True
