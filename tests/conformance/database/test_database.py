"""database/database: the database layer through the app's door: timeouts, passing errors, an unreachable or wrong
database.
"""

import fcntl
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Lock
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from penstock import Penstock
from penstock.database import error_advice
from penstock.database.connections import ConnectionHandle
from penstock.database.postgres.dialect import TRANSACTION_TIMEOUT_SINCE
from penstock.database.transaction import Transaction
from penstock.errors import ConfigurationError, DatabaseUnavailable, PenstockError
from penstock.testing import drain, travel
from tests.conformance.faults import deadlocked, disconnected, failing_at
from tests.conformance.rows import count, rows
from tests.waiting import eventually

AppOn = Callable[..., Penstock]


def test_every_statement_has_its_timeouts(make_app: AppOn) -> None:
    app = make_app(statement_timeout=7, lock_timeout=3)
    app.prepare()
    match app.database.dialect.name:
        case "postgresql":
            assert rows(app, "SHOW statement_timeout") == [("7s",)]
            assert rows(app, "SHOW lock_timeout") == [("3s",)]
            assert rows(app, "SHOW idle_in_transaction_session_timeout") == [("14s",)]
        case "mysql" if "MariaDB" in rows(app, "SELECT VERSION()")[0][0]:
            found = rows(app, "SELECT @@max_statement_time, @@innodb_lock_wait_timeout, @@tx_isolation")
            assert [(float(found[0][0]), *found[0][1:])] == [(7.0, 3, "READ-COMMITTED")]
        case "mysql":
            found = rows(
                app, "SELECT @@max_execution_time, @@innodb_lock_wait_timeout, @@transaction_isolation"
            )
            assert found == [(7000, 3, "READ-COMMITTED")]
        case _:
            assert rows(app, "PRAGMA busy_timeout") == [(3000,)]
            assert rows(app, "PRAGMA journal_mode") == [("wal",)]
            assert rows(app, "PRAGMA synchronous") == [(2,)]


def test_a_statement_that_takes_too_long_is_ended(make_app: AppOn) -> None:
    app = make_app(statement_timeout=0.2, lock_timeout=0.2)
    if app.database.dialect.name == "sqlite":
        pytest.skip("SQLite works in this very process: there is nothing to wait for but other writers")
    columns = "information_schema.columns"  # a sleep that is ended early is no error on MySQL
    slow = {
        "postgresql": "SELECT pg_sleep(20)",
        "mysql": f"SELECT COUNT(*) FROM {columns} a, {columns} b, {columns} c WHERE a.column_name <> b.column_name",
    }[app.database.dialect.name]
    tries = 0

    def sleep(tx: Transaction) -> None:
        nonlocal tries
        tries += 1
        tx.rows(slow)

    with pytest.raises(DatabaseUnavailable, match=r"timeout|max_statement_time|maximum statement") as ended:
        app.database.read(sleep)
    assert tries == 2, "it is tried once more, not for minutes"
    assert "raise statement_timeout" in str(ended.value)


@pytest.mark.parametrize("fault", [deadlocked, disconnected])
@pytest.mark.parametrize("point", ["enqueue.1", "enqueue.commit"])
def test_what_passes_by_itself_is_tried_again(
    app: Penstock, fault: Callable[[Penstock], Exception], point: str
) -> None:
    @app.task
    def note() -> None: ...

    app.prepare()
    with failing_at(point, fault(app), times=3) as struck:
        note.enqueue()
    assert len(struck) == 3
    assert drain(app) == 1


def test_what_does_not_pass_is_explained(app: Penstock) -> None:
    @app.task
    def note() -> None: ...

    app.prepare()
    with (
        failing_at("enqueue.1", deadlocked(app), times=100),
        pytest.raises(DatabaseUnavailable, match="does not answer as it should"),
    ):
        note.enqueue()
    assert count(app, "jobs") == 0


def test_a_real_deadlock_is_survived(make_app: AppOn) -> None:
    app = make_app(pool_size=4)

    @app.task
    def note() -> None: ...

    ids = [note.enqueue().id for _ in range(2)]
    barrier, tries, lock = Barrier(2), [0], Lock()
    touch = "UPDATE {job_states} SET retry_count = retry_count + 1 WHERE job_id = :id"

    def cross(tx: Transaction, first: str, second: str) -> None:
        with lock:
            tries[0] += 1
            meet = tries[0] <= 2 and app.database.dialect.name != "sqlite"
        tx.count(touch, id=first)
        if meet:
            barrier.wait(30)
        tx.count(touch, id=second)

    with ThreadPoolExecutor(2) as threads:
        for done in [
            threads.submit(lambda: app.database.in_transaction(cross, ids[0], ids[1])),
            threads.submit(lambda: app.database.in_transaction(cross, ids[1], ids[0])),
        ]:
            done.result(60)
    found = rows(app, "SELECT retry_count FROM {job_states}")
    assert found == [(2,), (2,)], "each transaction took effect exactly once"
    assert tries[0] == 2 if app.database.dialect.name == "sqlite" else tries[0] >= 3


def test_no_more_connections_are_kept_than_wanted(make_app: AppOn) -> None:
    app = make_app(pool_size=3)

    @app.task
    def note() -> None: ...

    together = Barrier(8)

    def read(tx: Transaction) -> None:
        tx.rows("SELECT 1")
        together.wait(30)

    for _ in range(2):
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda _: app.database.read(read), range(8)))
    pool: Any = app.database.engine.pool
    kept = pool.checkedin() + pool.checkedout()
    assert kept <= 3
    app.close()
    assert note.enqueue().status == "available", "a closed app opens again when it is used"


def test_a_database_in_memory_is_a_new_one_after_a_close() -> None:
    app = Penstock("sqlite://")

    @app.task
    def note() -> None: ...

    old = note.enqueue()
    app.close()
    assert note.enqueue().status == "available"
    with pytest.raises(PenstockError):
        _ = old.status
    app.close()


def test_a_connection_that_is_kept_and_lost_is_noticed(app: Penstock) -> None:
    @app.task
    def note() -> None: ...

    note.enqueue()
    fairy = app.database.connections.borrow()
    fairy.driver_connection.close()
    app.database.connections.give_back(fairy)
    note.enqueue()
    assert count(app, "jobs") == 2


def test_statements_that_came_behind_an_error_can_be_used_later(make_app: AppOn) -> None:
    """On PostgreSQL they were sent along, and were not even prepared."""
    app = make_app(pool_size=1)
    app.prepare()

    def wrong(tx: Transaction) -> None:
        tx.run("SELECT broken FROM {jobs}")
        tx.run("SELECT 2 FROM {jobs}")
        tx.rows("SELECT 3 FROM {jobs}")

    with pytest.raises(Exception, match="broken"):
        app.database.in_transaction(wrong)
    for number in (2, 3):
        assert rows(app, f"SELECT {number} FROM {{jobs}}") == []


def test_a_process_that_froze_in_the_middle_of_a_journey_does_not_keep_its_locks(
    postgres_url: str, app_on: AppOn
) -> None:
    app = app_on(postgres_url, statement_timeout=0.5, lock_timeout=0.2)

    @app.task
    def note() -> None: ...

    note.enqueue()
    if int(rows(app, "SELECT current_setting('server_version_num')")[0][0]) < TRANSACTION_TIMEOUT_SINCE:
        pytest.skip("before version 17 nothing ends a transaction in the middle of a journey")
    link = ConnectionHandle(app.database, dedicated=True)
    touch = "UPDATE {job_states} SET retry_count = 1"

    def freeze() -> None:
        with app.database.transaction(link) as tx:
            tx.run(touch)
            app.database.dialect.flush(tx.opened)
            # The server has it, and waits for the rest; we do nothing any more.
            eventually(lambda: _touches(app, touch), 20)

    with pytest.raises(psycopg.Error):
        freeze()


def _touches(app: Penstock, touch: str) -> bool:
    try:
        app.database.in_transaction(lambda tx: tx.count(touch))
    except DatabaseUnavailable:
        return False
    return True


def test_a_process_that_froze_at_the_gate_of_a_file_is_waited_for_once(
    sqlite_url: str, app_on: AppOn
) -> None:
    app = app_on(sqlite_url, lock_timeout=3, statement_timeout=5)

    @app.task
    def note() -> None: ...

    note.enqueue()
    with Path(f"{app.database.url.database}-penstock").open("r+") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        took = []
        for _ in range(4):
            began = time.monotonic()
            note.enqueue()
            took.append(time.monotonic() - began)
    assert took[0] >= 3
    assert max(took[1:]) < 3, "the gate keeps the order; the file decides"
    assert count(app, "jobs") == 5


def test_a_database_in_memory_has_it_all() -> None:
    with Penstock("sqlite:///:memory:") as app:

        @app.task(retries=1)
        def flaky(text: str) -> str:
            if len(job.attempts()) == 0:
                raise ValueError
            return text

        job = flaky.options(delay=5, key="a").enqueue("done")
        with travel(app, 3600):
            drain(app)
        with travel(app, 7200):
            drain(app)
        assert job.result(timeout=0) == "done"


def test_two_databases_in_memory_are_two() -> None:
    with Penstock("sqlite://") as one, Penstock("sqlite:///:memory:") as two:

        @one.task
        def note() -> None: ...

        note.enqueue()
        two.prepare()
        assert count(two, "jobs") == 0


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("nonsense", "database_url"),
        ("oracle://localhost/shop", "database_url"),
        ("postgresql", "database_url"),
        ("mongodb://localhost", "database_url"),
        ("sqlite://shop.db", r"sqlite:///|database_url"),
        ("", "database_url"),
        (7, "database_url"),
    ],
)
def test_a_broken_url_is_refused_with_the_forms_that_work(url: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as refused:
        Penstock(url)  # type: ignore[arg-type]
    assert "sqlite://" in str(refused.value)


def test_a_password_is_never_shown() -> None:
    app = Penstock("postgresql://ann:secret@127.0.0.1:1/shop", connect_timeout=0.1)
    assert "secret" not in repr(app)
    assert "secret" not in repr(app.settings)
    with pytest.raises(ConfigurationError) as refused:
        Penstock("postgres//ann:secret@127.0.0.1/shop")
    assert "secret" not in str(refused.value)
    with pytest.raises(ConfigurationError) as refused:
        Penstock("postgresql://ann:secret@127.0.0.1:1,:2/shop")
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann@127.0.0.1:1/shop",
        "postgresql://ann@127.0.0.1:1,127.0.0.1:2/shop",
        "mysql://ann@127.0.0.1:1/shop",
    ],
)
def test_a_server_that_is_not_there_is_explained(url: str) -> None:
    app = Penstock(url, connect_timeout=0.1)

    @app.task
    def note() -> None: ...

    with pytest.raises(DatabaseUnavailable, match="127.0.0.1"):
        note.enqueue()


@pytest.mark.parametrize(
    "words",
    [
        "connection failed: FATAL:  sorry, too many clients already",
        "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
        '(1040, "Too many connections")',
    ],
)
def test_a_server_without_room_for_another_connection_is_explained(words: str) -> None:
    error = error_advice.explained(OSError(words), "db", passing=True)
    assert isinstance(error, DatabaseUnavailable)
    assert "max_connections" in str(error)


def test_what_a_driver_says_in_several_lines_is_told_in_one() -> None:
    words = "connection refused\n\tIs the server running on that host?\n"
    told = str(error_advice.explained(OSError(words), "db", passing=True))
    assert "connection refused. Is the server running on that host? See that it runs" in told


@pytest.mark.parametrize("said", ["in the environment", "in the url"])
def test_letters_arrive_whatever_encoding_others_prefer(
    app_on: AppOn, postgres_url: str, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    if said == "in the environment":
        monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    app = app_on(postgres_url if said == "in the environment" else f"{postgres_url}?client_encoding=latin1")

    @app.task
    def echo(text: str) -> str:
        return text

    job = echo.enqueue("ü 日本")
    drain(app)
    assert job.result(timeout=30) == "ü 日本"


def test_a_password_may_have_any_letters(app_on: AppOn, mariadb_url: str) -> None:
    root, password = make_url(mariadb_url), "p@ss/w#r?d:%41 ü€"
    with app_on(mariadb_url).database.engine.connect() as connection:
        connection.exec_driver_sql("CREATE USER letters@'127.0.0.1' IDENTIFIED BY %s", (password,))
        try:
            connection.exec_driver_sql("GRANT ALL ON *.* TO letters@'127.0.0.1'")
            url = root.set(username="letters", password=password).render_as_string(hide_password=False)
            app = app_on(url)
            app.task(name="note")(print)
            app.tasks["note"].enqueue()
            assert drain(app) == 1
        finally:
            connection.exec_driver_sql("DROP USER letters@'127.0.0.1'")


def test_a_folder_that_is_not_there_is_explained(tmp_path: Path) -> None:
    app = Penstock(f"sqlite:///{tmp_path}/no/such/folder/shop.db")

    @app.task
    def note() -> None: ...

    with pytest.raises(DatabaseUnavailable, match="unable to open"):
        note.enqueue()


def test_a_missing_driver_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "penstock.database.postgres.dialect", raising=False)
    with pytest.raises(ConfigurationError, match=r"The driver for postgresql\+psycopg is missing"):
        Penstock("postgresql://localhost/shop")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"heartbeet_interval": 5}, "there is no setting 'heartbeet_interval'.*heartbeat_interval"),
        ({"batch": "many"}, "batch"),
        ({"pool_size": 0}, "pool_size"),
        ({"schema": "a;b", "database_url_": 1}, "there is no setting"),
        ({"table_prefix": "a b"}, "table_prefix"),
        ({"heartbeat_interval": 30, "reap_after": 30}, "reap_after"),
    ],
)
def test_a_wrong_setting_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Penstock("sqlite://", **settings)


def test_a_typo_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_DATABASE_ULR", "sqlite://")
    with pytest.raises(ConfigurationError, match="PENSTOCK_DATABASE_ULR.*PENSTOCK_DATABASE_URL"):
        Penstock()


def test_bad_queues_for_a_worker_are_refused(app: Penstock) -> None:
    with pytest.raises(ConfigurationError, match="queues='mail:many'"):
        app.worker(queues="mail:many")


def test_a_file_that_is_no_database_says_so(app_on: AppOn, tmp_path: Path) -> None:
    (tmp_path / "shop.db").write_text("orders, receipts and other things" * 100)
    with pytest.raises(DatabaseUnavailable, match="not a database.* SQLite file"):
        app_on(f"sqlite:///{tmp_path}/shop.db").migrate()


def test_a_table_that_is_gone_is_said_with_what_to_do(app: Penstock) -> None:
    @app.task(name="note")
    def note(number: int) -> int:
        return number

    job = note.enqueue(1)
    app.database.in_transaction(lambda tx: tx.run("DROP TABLE {jobs}"))
    app.database.in_transaction(lambda tx: tx.run("DROP TABLE {job_states}"))
    for ask in (lambda: note.enqueue(2), lambda: job.status, lambda: drain(app)):
        with pytest.raises(
            DatabaseUnavailable, match=r"has no table penstock_job\w+ any more. Something has"
        ):
            ask()
