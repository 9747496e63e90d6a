"""database/transaction: a commit that the database refuses leaves nothing behind: no open transaction in the pool,
no closed gate.
"""

import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from penstock import Penstock
from penstock.database.sqlite import Sqlite
from penstock.database.transaction import Transaction


def test_a_refused_commit_does_not_keep_others_from_writing(
    app_on: Callable[..., Penstock], sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = app_on(sqlite_url)
    with monkeypatch.context() as broken:
        broken.setattr(Sqlite, "commit", _refuse)
        with pytest.raises(sqlite3.OperationalError), app.database.sqlalchemy() as (connection, _):
            connection.exec_driver_sql("CREATE TABLE refused (x INTEGER)")

    assert _written_by_another_thread(app)


def test_a_transaction_that_the_database_rolled_back_by_itself_frees_the_gate(
    app_on: Callable[..., Penstock], sqlite_url: str
) -> None:
    app = app_on(sqlite_url)
    with pytest.raises(RuntimeError), app.database.transaction() as tx:
        _fill_the_disk(tx)

    assert _written_by_another_thread(app)


def test_a_transaction_that_is_over_before_its_commit_says_so_and_frees_the_gate(
    app_on: Callable[..., Penstock], sqlite_url: str
) -> None:
    app = app_on(sqlite_url)
    with pytest.raises(sqlite3.OperationalError, match="has ended"), app.database.sqlalchemy() as (lent, _):
        lent.exec_driver_sql("ROLLBACK")
    with pytest.raises(sqlite3.OperationalError, match="has ended"), app.database.transaction() as tx:
        tx.driver.execute("COMMIT")

    assert _written_by_another_thread(app)


@pytest.mark.parametrize("waits", [False, True], ids=["one journey", "two journeys"])
def test_what_fails_at_the_commit_itself_fails_the_transaction(
    app_on: Callable[..., Penstock], postgres_url: str, waits: bool
) -> None:
    app = app_on(postgres_url)
    unique = "UNIQUE (x) DEFERRABLE INITIALLY DEFERRED"
    app.database.in_transaction(lambda tx: tx.run(f"CREATE TABLE numbers (x int, {unique})"))

    def write(tx: Transaction) -> None:
        tx.run("INSERT INTO numbers VALUES (1)")
        if waits:
            tx.rows("SELECT 1")
        tx.run("INSERT INTO numbers VALUES (1)")

    with pytest.raises(psycopg.errors.UniqueViolation):
        app.database.in_transaction(write)
    assert app.database.read(lambda tx: tx.rows("SELECT x FROM numbers")) == []
    app.database.in_transaction(lambda tx: tx.run("INSERT INTO numbers VALUES (2)"))
    assert app.database.read(lambda tx: tx.rows("SELECT x FROM numbers")) == [(2,)]


def test_a_connection_that_dies_at_the_commit_itself_is_given_up(
    app_on: Callable[..., Penstock], postgres_url: str
) -> None:
    app = app_on(postgres_url)
    app.database.in_transaction(_kill_whoever_commits)

    with pytest.raises(psycopg.OperationalError), app.database.transaction() as tx:
        tx.run("INSERT INTO numbers VALUES (1)")
    assert app.database.read(lambda tx: tx.rows("SELECT x FROM numbers")) == []


def _kill_whoever_commits(tx: Transaction) -> None:
    tx.run("CREATE TABLE numbers (x int)")
    tx.run(
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'"
    )
    tx.run(
        "CREATE CONSTRAINT TRIGGER dies AFTER INSERT ON numbers DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION die()"
    )


def _refuse(_dialect: Sqlite, _driver: Any, *_: object) -> None:
    raise sqlite3.OperationalError("database is locked")


def _fill_the_disk(tx: Transaction) -> None:
    """SQLite rolls the transaction back by itself, then says so."""
    tx.driver.execute("ROLLBACK")
    raise RuntimeError


def _written_by_another_thread(app: Penstock) -> bool:
    done = threading.Event()

    def write() -> None:
        app.database.in_transaction(lambda tx: tx.run("DELETE FROM {leases}"))
        done.set()

    threading.Thread(target=write, daemon=True).start()
    return done.wait(30)
