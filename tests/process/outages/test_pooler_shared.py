"""database/postgres/dialect: Many workers share few connections of the server through PgBouncer, in transaction
mode: five workers to one.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock import Penstock
from tests.conftest import SESSION, had
from tests.servers.pgbouncer import PgBouncer
from tests.servers.postgres import Postgres
from tests.waiting import eventually
from tests.workers import Workers

pytestmark = pytest.mark.process

WORKERS, CONNECTIONS, JOBS = 25, 5, 500
SHOP = """
from penstock import Penstock

app = Penstock(pooler="transaction", poll_interval=2)


@app.task
async def double(number: int) -> int:
    return number * 2
"""


@pytest.fixture
def pooled(pytestconfig: pytest.Config, postgres_server: Postgres) -> Iterator[str]:
    """The URL of a PgBouncer before a server of our own, which lets few through."""
    postgres_server.create_database("shop")
    url = postgres_server.url("shop")
    folder = pytestconfig.stash[SESSION] / f"own-{os.getpid()}-pgbouncer"
    few: dict[str, Any] = {
        "max_client_conn": 1000,
        "default_pool_size": CONNECTIONS,
        "max_db_connections": CONNECTIONS,
    }
    with ExitStack() as stack:
        pool = had(lambda: stack.enter_context(PgBouncer(folder, url, "transaction", **few)))
        yield pool.through(url)


def test_five_workers_share_a_connection(
    pooled: str,
    postgres_server: Postgres,
    app_on: Callable[..., Penstock],
    workers_on: Callable[[str], Workers],
    tmp_path: Path,
) -> None:
    app = app_on(pooled, pooler="transaction")
    app.migrate()

    @app.task(name="shop.double")
    async def double(number: int) -> int:
        return number * 2

    workers_on(pooled)("--processes", str(WORKERS), module=SHOP)
    registered = "SELECT count(*) FROM penstock_processes WHERE role <> 'supervisor'"
    used = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'shop' AND pid <> pg_backend_pid()"
    done = "SELECT count(*) FROM penstock_job_states WHERE status = 'succeeded'"
    with psycopg.connect(postgres_server.url("shop"), autocommit=True) as direct:

        def number(query: str) -> int:
            row = direct.execute(query.encode()).fetchone()
            return int(row[0]) if row else 0

        eventually(lambda: number(registered) == WORKERS, 100)
        double.enqueue_many([(value,) for value in range(JOBS)])
        most = 0

        def all_done() -> bool:
            nonlocal most
            most = max(most, number(used))
            return number(done) == JOBS

        eventually(all_done, 100)
    assert 0 < most <= CONNECTIONS
