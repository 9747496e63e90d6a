"""schema/migrate: On MySQL the lock of who upgrades is the connection's: what can go wrong with such a lock."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from threading import Barrier, Semaphore
from typing import Any

import pytest
from sqlalchemy import event, inspect

from penstock import Penstock
from penstock.errors import DatabaseUnavailable
from penstock.schema import migrate
from penstock.schema.version import LATEST

Fresh = Callable[..., Penstock]


@pytest.fixture
def fresh(mariadb_url: str, app_on: Callable[..., Penstock]) -> Fresh:
    """Apps over tables that are not there yet."""
    return lambda **settings: app_on(mariadb_url, **{"table_prefix": "fresh_"} | settings)


@contextmanager
def upgrading(app: Penstock) -> Iterator[None]:
    with app.database.engine.connect() as connection, migrate.alone(app.database, connection):
        yield


def test_the_next_holder_of_the_lock_sees_all_that_was_done(fresh: Fresh) -> None:
    """Given back before the commit, it would let the next one look too soon."""
    app, next_one = fresh(), fresh()
    found: list[int] = []

    def look(*execution: Any) -> None:
        if "RELEASE_LOCK" in execution[2]:
            found.append(migrate.look(next_one.database))

    event.listen(app.database.engine, "before_cursor_execute", look)
    assert app.migrate() == LATEST
    assert found == [LATEST]


def test_an_upgrade_waits_for_another_that_takes_long(fresh: Fresh) -> None:
    """A wait that lasts too long is ended without an error, and without the lock."""
    slow, patient = fresh(), fresh(statement_timeout=1, lock_timeout=1)
    cut_off = Semaphore(0)

    def count_waits(*execution: Any) -> None:
        if "GET_LOCK" in execution[2]:
            cut_off.release()

    event.listen(patient.database.engine, "after_cursor_execute", count_waits)
    with ThreadPoolExecutor(1) as threads:
        with upgrading(slow):
            upgrade = threads.submit(patient.migrate)
            assert cut_off.acquire(timeout=30)
            assert cut_off.acquire(timeout=30)
        assert upgrade.result(30) == LATEST


def test_an_upgrade_that_does_not_end_is_named(fresh: Fresh) -> None:
    endless, other = fresh(), fresh(statement_timeout=0.3, lock_timeout=0.3)
    with upgrading(endless), pytest.raises(DatabaseUnavailable, match="another process is upgrading"):
        other.migrate()
    assert other.migrate() == LATEST


def test_one_that_failed_leaves_no_lock(fresh: Fresh, monkeypatch: pytest.MonkeyPatch) -> None:
    failing, other = fresh(), fresh(statement_timeout=1, lock_timeout=1)
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "MIGRATIONS", (*migrate.MIGRATIONS[:3], _broken, *migrate.MIGRATIONS[4:]))
        with pytest.raises(RuntimeError, match="broken"):
            failing.migrate()
    assert other.migrate() > 0
    assert failing.migrate() == 0


def _broken(*anything: object) -> None:
    raise RuntimeError("broken")


def test_twenty_may_upgrade_though_the_lock_holds_none_of_them_off(
    fresh: Fresh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The nodes of a cluster each have locks of their own."""
    apps, barrier = [fresh() for _ in range(20)], Barrier(20)
    monkeypatch.setattr(migrate, "alone", lambda *_: nullcontext())

    def upgrade(app: Penstock) -> None:
        barrier.wait()
        app.migrate()

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(upgrade, apps))
    monkeypatch.undo()
    alone = fresh(table_prefix="alone_")
    alone.migrate()
    assert shape(apps[0]) == shape(alone)
    assert migrate.look(apps[0].database) == LATEST


def shape(app: Penstock) -> dict[str, Any]:
    """Columns and indexes of each table, whatever the prefix."""
    prefix = app.database.prefix
    with app.database.engine.connect() as connection:
        look = inspect(connection)
        return {
            table.removeprefix(prefix): (
                [column["name"] for column in look.get_columns(table)],
                sorted(str(index["name"]).removeprefix(prefix) for index in look.get_indexes(table)),
            )
            for table in look.get_table_names()
            if table.startswith(prefix)
        }
