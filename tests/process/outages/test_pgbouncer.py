"""database/postgres/dialect, database/diagnostics: Behind PgBouncer, whether or not the settings say so: work is
done, nothing leaks into its pool, and it is named.
"""

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from penstock import Penstock
from penstock.database.diagnostics import measurements
from penstock.errors import DatabaseUnavailable
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conftest import SESSION
from tests.servers.errors import Unavailable
from tests.servers.pgbouncer import PgBouncer

pytestmark = pytest.mark.process

AppOn = Callable[..., Penstock]
SETTINGS = (
    "enable_seqscan",
    "enable_bitmapscan",
    "jit",
    "plan_cache_mode",
    "statement_timeout",
    "lock_timeout",
)
LEFT = [
    *[f"SHOW {name}" for name in SETTINGS],
    "SELECT count(*) FROM pg_prepared_statements",
    "SELECT count(*) FROM pg_listening_channels()",
]


@pytest.fixture
def pool(pytestconfig: pytest.Config, postgres_url: str) -> Iterator[Callable[..., PgBouncer]]:
    """`pool("transaction")`: PgBouncer in that mode before the test's server."""
    with ExitStack() as stack:

        def start(mode: str, **options: bool) -> PgBouncer:
            folder = pytestconfig.stash[SESSION] / f"own-{os.getpid()}-pgbouncer"
            try:
                return stack.enter_context(PgBouncer(folder, postgres_url, mode, **options))
            except Unavailable as missing:
                pytest.skip(str(missing))

        yield start


def declare(app: Penstock) -> Penstock:
    @app.task(name="double", retries=0)
    def double(number: int) -> int:
        return number * 2

    return app


def work(app: Penstock, count: int = 40) -> None:
    async def main(_: Worker) -> list[int]:
        jobs = await app.tasks["double"].enqueue_many_async([(number,) for number in range(count)])
        keyed = await app.tasks["double"].options(key="a").enqueue_async(3)
        return [await job.result_async(timeout=60) for job in (*jobs, keyed)]

    assert beside_a_worker(app, main) == [*(number * 2 for number in range(count)), 6]


@contextmanager
def clients(url: str, count: int = 5) -> Iterator[list[psycopg.Connection]]:
    """As many as the pool has connections, each of which has one to itself."""
    with ExitStack() as stack:
        yield [stack.enter_context(psycopg.connect(url, prepare_threshold=None)) for _ in range(count)]


def seen(url: str) -> set[tuple[str, ...]]:
    """What is set on the connections that others of the pool are given."""
    with clients(url) as connections:
        return {tuple(one(connection, query) for query in LEFT) for connection in connections}


def one(connection: psycopg.Connection, query: str) -> str:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return str(row[0])


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize("said", ["none", "transaction"])
def test_a_transaction_pool(
    app_on: AppOn,
    postgres_url: str,
    pool: Callable[..., PgBouncer],
    caplog: pytest.LogCaptureFixture,
    said: str,
    refuses: bool,
) -> None:
    """Unsaid: start-up parameters were refused; or prepared statements met, and settings leaked into the pool."""
    url = pool("transaction", refuses=refuses).through(postgres_url)
    before = seen(url)
    with caplog.at_level(logging.WARNING, "penstock"):
        app = declare(app_on(url, pooler=said, poll_interval=0.05))
        work(app)
    assert seen(url) == before, "nothing leaks"
    words = [line for line in caplog.messages if "a pooler stands before the database" in line]
    assert len(words) == (said == "none"), caplog.messages
    advice = [check.advice for check in measurements(app.database) if check.name == "pooler"]
    assert bool(advice and advice[0]) == (said == "none")


def test_a_session_pool(app_on: AppOn, postgres_url: str, pool: Callable[..., PgBouncer]) -> None:
    """It can be listened through; timeouts are there although it refuses them at the start."""
    url = pool("session").through(postgres_url)
    app = declare(app_on(url, pooler="session", statement_timeout=7, lock_timeout=3))
    work(app)
    assert app.settings.listens
    shown = app.database.read(lambda tx: tx.row("SELECT current_setting('statement_timeout')"))
    assert shown == ("7s",)


def test_what_the_url_begins_with_is_refused_by_name(
    app_on: AppOn, postgres_url: str, pool: Callable[..., PgBouncer]
) -> None:
    url = pool("transaction").through(postgres_url)
    with pytest.raises(DatabaseUnavailable, match="A pooler stands before the database and refuses"):
        app_on(f"{url}?options=-c%20jit%3Doff").migrate()


def test_a_listen_url_that_leads_through_a_pool(
    app_on: AppOn, postgres_url: str, pool: Callable[..., PgBouncer]
) -> None:
    """It is the wrong way, and `doctor` says so; the right one, to the database itself, stays as it is."""
    url = pool("transaction", refuses=False).through(postgres_url)
    app = declare(app_on(postgres_url, listen_url=url, poll_interval=0.05))
    work(app)
    assert not app.database.dialect.is_pooled
    assert {vital.name for vital in measurements(app.database) if vital.advice} == {"wake-ups"}
