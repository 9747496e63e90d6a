"""database/error_advice: a database that can be read but not written: a full disk, a standby. Clear words, and
patience.
"""

import os
import re
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy.engine import make_url

from penstock import Penstock
from penstock.errors import DatabaseUnavailable
from tests.process.history import check, done, rows, settled
from tests.process.programs import lines_with, start_worker
from tests.process.scenes import make_app
from tests.waiting import eventually
from tests.workers import WorkerProcess, Workers

pytestmark = pytest.mark.process

LOOPS = 3
UNLIMITED = resource.RLIM_INFINITY


def test_postgres_becomes_read_only_and_writable_again(
    postgres_url: str, workers_on: Callable[[str], Workers]
) -> None:
    app = make_app(postgres_url)
    worker = begin(app, workers_on(postgres_url))
    with read_only(postgres_url):
        troubled(worker)
        with pytest.raises(DatabaseUnavailable, match="read-only") as refused:
            make_app(postgres_url).tasks["double"].enqueue(1)
        assert "writable" in str(refused.value), "it says what to do"
    end(app, worker)


def test_a_disk_that_is_full_and_has_room_again(
    sqlite_url: str, workers_on: Callable[[str], Workers]
) -> None:
    app = make_app(sqlite_url)
    worker = begin(app, workers_on(sqlite_url))
    with no_room_for(worker.pid):
        eventually(lambda: rows(app, "SELECT 1 FROM {processes} WHERE heartbeat_at < {now} - 1000000"))
        troubled(worker)
    end(app, worker)


def test_a_producer_on_a_full_disk_is_told_so(sqlite_url: str) -> None:
    app = make_app(sqlite_url)
    app.prepare()
    with no_room_for(os.getpid()), pytest.raises(DatabaseUnavailable, match="disk") as refused:
        app.tasks["double"].enqueue_many([(number,) for number in range(2_000)])
    assert re.search(r"room|writable", str(refused.value)), "it says what to do"
    app.tasks["double"].enqueue(1)
    assert done(app) == 0


def begin(app: Penstock, workers: Workers) -> WorkerProcess:
    app.tasks["linger"].enqueue_many([(number,) for number in range(300)])
    worker = start_worker(workers, "--processes", "0", "--concurrency", "10")
    eventually(lambda: done(app) > 20)
    return worker


def troubled(worker: WorkerProcess) -> None:
    eventually(lambda: lines_with(worker, "pump of jobs is in trouble"))
    eventually(lambda: lines_with(worker, "heartbeat is in trouble"))
    assert worker.running


def end(app: Penstock, worker: WorkerProcess) -> None:
    """It goes on by itself; nothing was spent, and it did not cry without end."""
    settled(app)
    assert worker.stop() == 0
    jobs = check(app, every_claim_recorded=False)
    assert {(job["status"], job["crash_count"], job["retry_count"]) for job in jobs.values()} == {
        ("succeeded", 0, 0)
    }
    assert len(lines_with(worker, "is in trouble")) <= LOOPS
    assert lines_with(worker, "pump of jobs works again")


@contextmanager
def read_only(url: str) -> Iterator[None]:
    """As after a failover to the wrong side: sessions that begin now can only read."""
    database = make_url(url).database
    _administer(url, f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    yield
    _administer(url, f"ALTER DATABASE {database} RESET default_transaction_read_only")


def _administer(url: str, statement: str) -> None:
    plain = make_url(url).set(drivername="postgresql", database="postgres")
    others = (
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{make_url(url).database}'"
    )
    with psycopg.connect(plain.render_as_string(hide_password=False), autocommit=True) as connection:
        connection.execute(statement.encode())
        connection.execute(others.encode())


@contextmanager
def no_room_for(pid: int) -> Iterator[None]:
    """No file that this process writes may grow beyond a few pages; that is enough for its log."""
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (20_000, UNLIMITED))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))
