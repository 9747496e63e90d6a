"""reconcile/row_lock: of two writers at once one waits for the other, never longer than its timeout."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from sqlalchemy import create_engine, update

from penstock import Penstock
from penstock.database.sqlite import Sqlite
from penstock.errors import LockTimeout
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.cloud import Cloud, Volume, declare
from tests.waiting import eventually

SOON = 6.0
"""Well before the `lock_timeout` of statements, and long after any timeout here."""


@pytest.fixture
def rows_have_locks(database_kind: str) -> None:
    if database_kind == "sqlite":
        pytest.skip("SQLite has one writer at a time, for the whole file")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def write(app: Penstock, ip: str, timeout: float) -> float:
    began = time.monotonic()
    with app.lock(Volume, 1, timeout=timeout) as connection:
        connection.execute(update(Volume).where(Volume.id == 1).values(ip=ip))
    return time.monotonic() - began


def test_who_waited_in_vain_is_told_so(
    make_app: Callable[..., Penstock], threads: ThreadPoolExecutor
) -> None:
    app = make_app(lock_timeout=1)
    Cloud(app).volumes(1)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with app.lock(Volume, 1):
            inside.set()
            leave.wait(30)

    holder = threads.submit(hold)
    assert inside.wait(30)
    with pytest.raises(LockTimeout):
        write(app, "late", 0.2)
    leave.set()
    holder.result(timeout=30)


@contextmanager
def stranger(app: Penstock) -> Iterator[None]:
    """A program that does not know Penstock writes the row, and takes long."""
    with create_engine(app.database.url.as_sqlalchemy()).connect() as connection:
        connection.execute(update(Volume).where(Volume.id == 1).values(name="stranger"))
        yield
        connection.rollback()


@pytest.mark.parametrize("holder", ["the same app", "another process", "a stranger"])
def test_who_waits_for_another_writer_gives_up_in_time(
    app: Penstock, cloud: Cloud, other: Penstock, threads: ThreadPoolExecutor, holder: str
) -> None:
    cloud.volumes(1)
    writers = {"the same app": app.lock, "another process": other.lock}
    with writers[holder](Volume, 1) if holder in writers else stranger(app):
        for timeout in (0, 0.2, 1):
            began = time.monotonic()
            with pytest.raises(LockTimeout):
                threads.submit(write, app, "late", timeout).result(timeout=30)
            assert time.monotonic() - began < SOON
    write(app, "10.0.0.2", 5)
    assert cloud.get(Volume, 1).ip == "10.0.0.2"


def test_nor_is_it_kept_by_taking_back_its_announcement(
    app: Penstock, cloud: Cloud, other: Penstock, threads: ThreadPoolExecutor
) -> None:
    cloud.volumes(1)
    with ManualReconciler(app, declare(app, Volume)) as mine:
        mine.take()
        began = time.monotonic()
        late = threads.submit(write, other, "late", 0.5)
        eventually(lambda: cloud.get(Volume, 1).lock_wanted_by is not None)
        with stranger(app), pytest.raises(LockTimeout):
            late.result(timeout=30)
        assert time.monotonic() - began < SOON


def test_who_gave_up_soon_does_not_hurry_the_next(
    app: Penstock, cloud: Cloud, other: Penstock, threads: ThreadPoolExecutor, database_kind: str
) -> None:
    """On the same connections, others wait for as long as they ever did."""
    cloud.volumes(1)
    with other.lock(Volume, 1):
        with pytest.raises(LockTimeout):
            threads.submit(write, app, "late", 0).result(timeout=30)
        if database_kind == "sqlite":
            assert isinstance(app.database.dialect, Sqlite)
            assert not app.database.dialect.gate.blocked
        second = threads.submit(write, app, "10.0.0.2", 30)
        eventually(second.running)
    second.result(timeout=30)
    if database_kind == "sqlite":
        with app.database.engine.connect() as connection:
            usual = app.database.settings.lock_timeout * 1000
            assert connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one() == usual


@pytest.mark.usefixtures("rows_have_locks")
def test_who_waits_for_another_writer_comes_next(
    app: Penstock, cloud: Cloud, threads: ThreadPoolExecutor
) -> None:
    cloud.volumes(1)
    with app.lock(Volume, 1) as connection:
        connection.execute(update(Volume).where(Volume.id == 1).values(ip="10.0.0.1"))
        second = threads.submit(write, app, "10.0.0.2", 30)
        eventually(second.running)
    assert second.result(timeout=30) < SOON
    assert cloud.get(Volume, 1).ip == "10.0.0.2"


@pytest.mark.usefixtures("rows_have_locks")
def test_the_block_has_the_usual_patience(app: Penstock, cloud: Cloud, database_kind: str) -> None:
    """What was said for the wait is not said for the statements of the block, nor of who has the connection next."""
    asks = {"postgres": "SHOW lock_timeout", "mariadb": "SELECT @@innodb_lock_wait_timeout"}
    with app.database.engine.connect() as connection:
        usual = connection.exec_driver_sql(asks[database_kind]).scalar_one()
    cloud.volumes(1)
    with app.lock(Volume, 1), pytest.raises(LockTimeout):
        write(app, "late", 0.5)
    for _ in range(3):
        with app.lock(Volume, 1, timeout=0.5) as connection:
            assert connection.exec_driver_sql(asks[database_kind]).scalar_one() == usual
