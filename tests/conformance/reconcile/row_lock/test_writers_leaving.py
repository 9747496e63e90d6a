"""reconcile/row_lock: no worker waits for a writer that gave up waiting and failed."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from sqlalchemy import event, update

from penstock import Penstock
from penstock.errors import DatabaseUnavailable
from penstock.reconcile.row_lock import RowLock
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.faults import deadlocked, disconnected
from tests.conformance.reconcile.cloud import Cloud, Volume, declare

Hands = Callable[..., ManualReconciler]
STOP = update(Volume).where(Volume.id == 1).values(status="terminating")


@pytest.fixture
def waited(app: Penstock, cloud: Cloud, hand: Hands) -> RowLock:
    """A lock that has been waited for: its announcement is on the row, and the row is free now."""
    cloud.volumes(1)
    mine = hand(declare(app, Volume))
    (item,) = mine.take()
    lock = app.lock(Volume, 1, timeout=300)
    assert not lock._try()
    mine.finish(mine.end(item, {"status": "active"}))
    assert cloud.get(Volume, 1).lock_wanted_by == lock.me
    return lock


def test_whose_commit_fails(
    app: Penstock, cloud: Cloud, waited: RowLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = disconnected(app)

    def lose(driver: Any, *_: object) -> None:
        monkeypatch.undo()
        driver.rollback()
        raise lost

    def write() -> None:
        with waited as connection:
            connection.execute(STOP)
            if app.database.dialect.name == "sqlite":
                monkeypatch.setattr(app.database.dialect, "commit", lose)
            else:
                monkeypatch.setattr(app.database.engine.dialect, "do_commit", lose)

    with pytest.raises(DatabaseUnavailable):
        write()
    found = cloud.get(Volume, 1)
    assert (found.status, found.lock_wanted_by) == ("active", None)
    with app.lock(Volume, 1, timeout=0.5) as connection:
        connection.execute(STOP)


@contextmanager
def failing_once(app: Penstock, error: Exception) -> Iterator[None]:
    """The next statement on a user's own connection fails."""
    struck: list[object] = []

    def strike(*facts: object) -> None:
        if not struck:
            struck.append(facts)
            raise error

    event.listen(app.database.engine, "before_cursor_execute", strike)
    try:
        yield
    finally:
        event.remove(app.database.engine, "before_cursor_execute", strike)
    assert struck


def test_that_is_disturbed_as_it_says_so(app: Penstock, cloud: Cloud, waited: RowLock) -> None:
    """It says so once more, and the caller hears its own error."""
    with ExitStack() as disturbed:

        def write() -> None:
            with waited:
                disturbed.enter_context(failing_once(app, deadlocked(app)))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write()
    assert cloud.get(Volume, 1).lock_wanted_by is None
