"""Many workers share few connections of the server through PgBouncer, in transaction mode: five workers to one."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from signal import SIGINT

import psycopg
import pytest

from penstock import Penstock
from tests.servers.binaries import SYSTEM_FOLDERS
from tests.servers.postgres import Postgres
from tests.servers.server import as_child, free_port, make_folder
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
SETTINGS = """
[databases]
shop = host=127.0.0.1 port={server} dbname=shop user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
max_client_conn = 1000
default_pool_size = {connections}
max_db_connections = {connections}
ignore_startup_parameters = extra_float_digits
"""


@pytest.fixture
def pooled(postgres_server: Postgres) -> Iterator[str]:
    """The URL of a PgBouncer before a server of our own, which lets few through."""
    path = os.pathsep.join([os.environ.get("PATH", ""), *SYSTEM_FOLDERS])
    program = shutil.which("pgbouncer", path=path)
    if program is None:
        pytest.skip("there is no pgbouncer here")
    postgres_server.create_database("shop")
    folder, port = postgres_server.folder.parent / f"pgbouncer-{os.getpid()}", free_port()
    make_folder(folder)
    settings = folder / "pgbouncer.ini"
    settings.write_text(SETTINGS.format(server=postgres_server.port, port=port, connections=CONNECTIONS))
    settings.chmod(0o644)
    process = subprocess.Popen(as_child([program, str(settings)], SIGINT), stderr=subprocess.DEVNULL)
    url = f"postgresql://postgres@127.0.0.1:{port}/shop"
    try:
        eventually(lambda: _answers(url))
        yield url
    finally:
        process.send_signal(SIGINT)
        process.wait(20)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True


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
