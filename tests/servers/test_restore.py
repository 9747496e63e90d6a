"""A database serves the next test only if nothing of the last one is left in it: tests/databases.py, restore.py."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from random import random
from subprocess import Popen

import pytest
from sqlalchemy import Connection, create_engine, inspect, text
from sqlalchemy.pool import NullPool

from penstock import Penstock
from penstock.database.url import parse
from penstock.testing import drain
from tests.conftest import had, migrate
from tests.databases import Databases

Use = Callable[[Callable[[str], object]], str]
POSTGRES, MARIADB = "postgres", "mariadb"
CHANGES = {
    "CREATE VIEW orders AS SELECT 1 AS one": (POSTGRES, MARIADB),
    "ALTER TABLE penstock_jobs ADD COLUMN more INT": (POSTGRES, MARIADB),
    "ALTER TABLE penstock_jobs DROP COLUMN max_crashes": (POSTGRES, MARIADB),
    "ALTER TABLE penstock_jobs ALTER COLUMN priority SET DEFAULT 7": (POSTGRES, MARIADB),
    "ALTER TABLE penstock_jobs RENAME COLUMN max_crashes TO most": (POSTGRES, MARIADB),
    "ALTER TABLE penstock_jobs ADD CHECK (priority < 7)": (POSTGRES, MARIADB),
    "CREATE INDEX more ON penstock_jobs (priority)": (POSTGRES, MARIADB),
    "DROP TABLE penstock_tallies": (POSTGRES, MARIADB),
    "UPDATE penstock_schema_versions SET version = version + 1000": (POSTGRES, MARIADB),
    "DELETE FROM penstock_schema_versions": (POSTGRES, MARIADB),
    "DROP INDEX penstock_jobs_step": (POSTGRES,),
    "ALTER TABLE penstock_jobs SET (fillfactor = 51)": (POSTGRES,),
    "COMMENT ON TABLE penstock_jobs IS 'more'": (POSTGRES,),
    "GRANT SELECT ON penstock_jobs TO PUBLIC": (POSTGRES,),
    "CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'": (POSTGRES,),
    "CREATE SCHEMA orders": (POSTGRES,),
    "CREATE SEQUENCE orders": (POSTGRES,),
    "CREATE TYPE mood AS ENUM ('good')": (POSTGRES,),
    "CREATE TRIGGER one BEFORE UPDATE ON penstock_jobs "
    "FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()": (POSTGRES,),
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 64', current_database()); END $$": (
        POSTGRES,
    ),
    "ANALYZE penstock_schema_versions": (POSTGRES,),
    "SELECT lo_create(0)": (POSTGRES,),
    "DROP INDEX penstock_jobs_step ON penstock_jobs": (MARIADB,),
    "ALTER TABLE penstock_jobs COMMENT = 'more'": (MARIADB,),
    "ALTER DATABASE CHARACTER SET latin1": (MARIADB,),
    "CREATE FUNCTION one() RETURNS INT RETURN 1": (MARIADB,),
    "CREATE TRIGGER one BEFORE UPDATE ON penstock_jobs FOR EACH ROW SET NEW.priority = 1": (MARIADB,),
}


@pytest.fixture(params=[POSTGRES, MARIADB])
def server_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    if kind not in request.config.getoption("--database"):
        pytest.skip(f"--database leaves {kind} out")
    return kind


@pytest.fixture
def use(server_kind: str, databases: Databases) -> Iterator[Use]:
    """`use(act)`: what a test does in its database; the name of that database."""
    with closing(Databases(databases.servers, migrate)) as ours:

        def used(act: Callable[[str], object]) -> str:
            with had(lambda: ours.migrated(server_kind, shared=True)) as url:
                act(url)
            return url

        yield used


def test_one_that_only_held_rows_is_empty_again(use: Use) -> None:
    used = use(work)
    assert use(demand_nothing) == used
    assert use(work) == used


def test_numbers_begin_again(use: Use) -> None:
    """Also where a row was deleted, or never committed."""

    def act(url: str) -> None:
        with connected(url) as connection:
            numbers.append([add_tally(connection) for _ in range(3)])
            connection.rollback()
            numbers.append([add_tally(connection) for _ in range(2)])
            connection.execute(text("DELETE FROM penstock_tallies"))
            connection.commit()

    numbers: list[list[int]] = []
    assert use(act) == use(act)
    assert numbers == [[1, 2, 3], [4, 5], [1, 2, 3], [4, 5]]


def test_tables_of_the_test_go(use: Use) -> None:
    def act(url: str) -> None:
        execute(url, "CREATE TABLE orders (id INT PRIMARY KEY)")
        execute(url, "CREATE TABLE order_lines (id INT PRIMARY KEY, order_id INT REFERENCES orders (id))")

    assert use(act) == use(demand_nothing)


@pytest.mark.parametrize(
    ("server_kind", "change"),
    [(kind, change) for change, kinds in CHANGES.items() for kind in kinds],
    indirect=["server_kind"],
)
def test_one_that_was_changed_goes(use: Use, change: str) -> None:
    changed = use(lambda url: execute(url, change))
    assert use(demand_nothing) != changed


def test_one_that_is_still_connected_to_goes(use: Use) -> None:
    def keep(connection: Connection) -> None:
        connection.execute(text("SELECT 1"))
        stack.callback(connection.invalidate)  # the server will have ended it

    with ExitStack() as stack:
        left = use(lambda url: keep(stack.enter_context(connected(url))))
        assert use(demand_nothing) != left


def test_one_whose_test_left_a_thread_goes(use: Use) -> None:
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    left = use(lambda _: thread.start())
    assert use(demand_nothing) != left
    end.set()
    thread.join()


def test_one_whose_test_left_a_process_goes(use: Use) -> None:
    with ExitStack() as stack:
        left = use(lambda _: stack.callback(stack.enter_context(Popen(["sleep", "100"])).kill))
        assert use(demand_nothing) != left


def work(url: str) -> None:
    with closing(Penstock(url)) as app:
        charge = app.task(name="charge")(lambda order: order)
        charge.enqueue(1)
        assert drain(app) == 1
        charge.enqueue(2)


def demand_nothing(url: str) -> None:
    with connected(url) as connection:
        tables = inspect(connection).get_table_names()
        assert len(tables) > 40
        for table in tables:
            rows = connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
            assert (rows == 0) == (table != "penstock_schema_versions"), table


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    with create_engine(parse(url).as_sqlalchemy(), poolclass=NullPool).connect() as connection:
        yield connection


def execute(url: str, change: str) -> None:
    with connected(url) as connection:
        connection.execute(text(change))
        connection.commit()


def add_tally(connection: Connection) -> int:
    values = "VALUES (1, 'charge', 'default', 'succeeded', 1, 0, 1, 1)"
    columns = "(tallied_at, task, queue, outcome, attempts, failed, run_micros, longest)"
    added = connection.execute(text(f"INSERT INTO penstock_tallies {columns} {values} RETURNING seq"))
    return int(added.scalar_one())


def test_threads_that_end_while_they_are_counted_are_no_error(use: Use) -> None:
    """The folder of a thread is gone between two looks at it."""

    def act(_: str) -> None:
        for _number in range(200):
            threads.append(threading.Thread(target=end.wait, args=[random() / 50]))
            threads[-1].start()

    threads: list[threading.Thread] = []
    end = threading.Event()
    use(act)
    for thread in threads:
        thread.join()
