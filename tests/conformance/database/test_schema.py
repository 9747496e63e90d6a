"""schema/migrate, schema/version: the schema: made on first use, by as many at once as like, and the same whichever
way it is made.
"""

import asyncio
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text
from sqlalchemy.dialects import postgresql

from penstock import Penstock
from penstock.errors import PenstockError, SchemaOutdated, SchemaTooNew
from penstock.schema import migrate
from penstock.schema.catalog import COLUMN_TYPES
from penstock.schema.version import LATEST
from penstock.testing import drain
from penstock.values.ids import new_id
from tests import forkserver
from tests.conformance.rows import count, rows
from tests.forkserver import Program

AppOn = Callable[..., Penstock]


def seen(app: Penstock) -> dict[str, Any]:
    """Tables, columns, keys and indexes as the database tells them."""
    with app.database.engine.connect() as connection:
        look = inspect(connection)
        return {
            table: {
                "columns": [
                    (column["name"], str(column["type"]), column["nullable"], column.get("autoincrement"))
                    for column in look.get_columns(table, schema=app.database.schema)
                ],
                "key": look.get_pk_constraint(table, schema=app.database.schema)["constrained_columns"],
                "indexes": sorted(
                    (str(index["name"]), index["column_names"], bool(index["unique"]))
                    for index in look.get_indexes(table, schema=app.database.schema)
                ),
                "options": _options(connection, app, table),
            }
            for table in look.get_table_names(schema=app.database.schema)
            if table.startswith(app.database.prefix)
        }


def _options(connection: Connection, app: Penstock, table: str) -> object:
    if app.database.dialect.name != "postgresql":
        return None
    query = text("SELECT reloptions FROM pg_class WHERE relname = :table")
    return connection.execute(query, {"table": table}).scalar()


@pytest.mark.parametrize("schema", [None, "Work"])
def test_names_may_have_capital_letters(empty_database_url: str, app_on: AppOn, schema: str | None) -> None:
    """PostgreSQL takes them for small ones, where they are not quoted: nothing could be migrated."""
    app = app_on(empty_database_url, table_prefix="Shop_", schema=schema)

    @app.task
    def send(order: int) -> int:
        return order * 2

    app.migrate()
    job = send.options(key="a").enqueue(2)
    assert drain(app) == 1
    assert job.result(timeout=0) == 4
    assert app_on(empty_database_url, table_prefix="Shop_", schema=schema).database.read(
        lambda tx: tx.row("SELECT COUNT(*) FROM {jobs}")
    ) == (1,)


def test_the_schema_is_made_on_first_use(empty_database_url: str, app_on: AppOn) -> None:
    app = app_on(empty_database_url)
    with app.database.engine.connect() as connection:
        assert inspect(connection).get_table_names() == []

    @app.task
    def note() -> int:
        return 1

    job = note.enqueue()
    assert drain(app) == 1
    assert job.result(timeout=0) == 1
    assert app.migrate() == 0


def test_twenty_may_make_it_at_once(empty_database_url: str, app_on: AppOn) -> None:
    apps = [app_on(empty_database_url) for _ in range(20)]
    barrier = Barrier(20)

    def start(app: Penstock) -> None:
        @app.task(name="note")
        def note() -> None: ...

        barrier.wait()
        note.enqueue()

    with ThreadPoolExecutor(20) as threads:
        list(threads.map(start, apps))
    assert count(apps[0], "jobs") == 20
    versions = rows(apps[0], f"SELECT version FROM {apps[0].database.qualified('schema_versions')}")
    assert sorted(version for (version,) in versions) == list(range(1, LATEST + 1))


@pytest.mark.process
def test_real_processes_may_make_it_at_once(empty_database_url: str, app_on: AppOn, tmp_path: Path) -> None:
    code = "import sys; from penstock import Penstock; Penstock(sys.argv[1]).prepare()"
    said = [tmp_path / f"said-{number}" for number in range(4)]
    arguments = ["-c", code, empty_database_url]
    started = [forkserver.start(Program(arguments, tmp_path, dict(os.environ), file)) for file in said]
    for process in started:
        process.join(100)
    assert [process.exitcode for process in started] == [0] * 4, "\n".join(file.read_text() for file in said)
    assert app_on(empty_database_url).migrate() == 0


def test_without_auto_migrate_an_empty_database_is_refused(empty_database_url: str, app_on: AppOn) -> None:
    locked_down = app_on(empty_database_url, auto_migrate=False)

    @locked_down.task(name="note")
    def note() -> None: ...

    with pytest.raises(SchemaOutdated, match=r"has no Penstock tables.*Run: penstock migrate"):
        note.enqueue()
    with pytest.raises(SchemaOutdated):
        drain(locked_down)
    with locked_down.database.engine.connect() as connection:
        assert inspect(connection).get_table_names() == []
    assert app_on(empty_database_url).migrate() == LATEST
    note.enqueue()
    assert drain(locked_down) == 1


def test_an_older_schema_is_refused_without_auto_migrate(app: Penstock, make_app: AppOn) -> None:
    app.prepare()
    versions = app.database.qualified("schema_versions")
    with app.database.engine.begin() as connection:
        connection.execute(text(f"DELETE FROM {versions} WHERE version = {LATEST}"))
    with pytest.raises(SchemaOutdated):
        make_app(auto_migrate=False).prepare()
    make_app().prepare()
    make_app(auto_migrate=False).prepare()


def test_a_schema_of_the_future_is_refused(app: Penstock, make_app: AppOn) -> None:
    app.prepare()
    versions = app.database.qualified("schema_versions")
    with app.database.engine.begin() as connection:
        connection.execute(text(f"INSERT INTO {versions} VALUES (999, 0)"))
    newer = make_app()

    @newer.task
    def note() -> None: ...

    with pytest.raises(SchemaTooNew, match=r"version 999.*Upgrade the penstock package"):
        note.enqueue()
    assert count(app, "jobs") == 0


def test_migrations_give_the_schema_of_the_tables(empty_database_url: str, app_on: AppOn) -> None:
    migrated = app_on(empty_database_url, table_prefix="one_")
    migrated.migrate()
    created = app_on(empty_database_url, table_prefix="two_")
    created.metadata.create_all(created.database.engine)
    assert _renamed(seen(created), "two_", "one_") == {
        table: what for table, what in seen(migrated).items() if table != "one_schema_versions"
    }


def test_there_are_as_many_migrations_as_versions() -> None:
    assert len(migrate.MIGRATIONS) == LATEST


def test_the_catalogue_knows_the_tables_and_their_columns(app: Penstock) -> None:
    dialect, prefix = postgresql.dialect(), app.database.prefix  # type: ignore[no-untyped-call]
    assert {
        table.name.removeprefix(prefix): {
            column.name: column.type.compile(dialect=dialect).partition(" COLLATE")[0]
            for column in table.columns
        }
        for table in app.metadata.tables.values()
    } == COLUMN_TYPES


def test_the_printed_sql_gives_the_same_schema(empty_database_url: str, app_on: AppOn) -> None:
    migrated = app_on(empty_database_url, table_prefix="one_")
    migrated.migrate()
    by_hand = app_on(empty_database_url, table_prefix="two_", auto_migrate=False)
    script = migrate.as_sql(by_hand.database)
    with by_hand.database.engine.begin() as connection:
        for statement in filter(None, (part.strip() for part in re.split(r";\s*\n", script))):
            connection.exec_driver_sql(
                statement.rstrip(";").replace("%", "%%") if "%" in statement else statement
            )
    assert _renamed(seen(by_hand), "two_", "one_") == seen(migrated)
    by_hand.prepare()

    @by_hand.task
    def note() -> None: ...

    note.enqueue()
    assert drain(by_hand) == 1


def _renamed(found: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    return {
        table.replace(old, new): what
        | {"indexes": sorted((name.replace(old, new), *rest) for name, *rest in what["indexes"])}
        for table, what in found.items()
    }


def test_prefixes_keep_apps_apart(empty_database_url: str, app_on: AppOn) -> None:
    one, two = (
        app_on(empty_database_url, table_prefix="one_"),
        app_on(empty_database_url, table_prefix="two_"),
    )
    for app in (one, two):

        @app.task(name="note")
        def note() -> None: ...

    one.tasks["note"].options(key="a").enqueue()
    two.prepare()
    assert drain(two) == 0
    assert drain(one) == 1


def test_a_schema_of_ones_own(empty_database_url: str, app_on: AppOn) -> None:
    app, other = app_on(empty_database_url, schema="work"), app_on(empty_database_url)

    @app.task(name="note")
    def note() -> int:
        return 1

    @other.task(name="note")
    def elsewhere() -> int:
        return 2

    job = note.options(key="a", delay=0).enqueue()
    other.prepare()
    assert drain(other) == 0
    assert drain(app) == 1
    assert job.result(timeout=0) == 1
    assert "work" in app.database.qualified("jobs")


def test_several_apps_in_one_process(app_on: AppOn, database_url: str) -> None:
    first, second = app_on("sqlite://"), app_on(database_url)

    @first.task(name="note")
    def note() -> str:
        return second_note.enqueue().id

    @second.task(name="note")
    def second_note() -> str:
        return "second"

    job = note.enqueue()
    assert drain(first) == 1
    assert drain(second) == 1
    assert second.job(job.result(timeout=0)).result(timeout=0) == "second"


def test_a_job_or_run_known_by_its_id_may_be_the_first_to_use_it(
    empty_database_url: str, app_on: AppOn
) -> None:
    app = app_on(empty_database_url)
    with pytest.raises(PenstockError, match="there is no job"):
        asyncio.run(app.job(new_id()).result_async(timeout=0))
    other = app_on(empty_database_url, table_prefix="other_")
    with pytest.raises(PenstockError, match="there is no run"):
        _ = other.run(new_id()).status


def test_the_url_may_be_given_by_name(app_on: AppOn, database_url: str) -> None:
    assert Penstock(database_url=database_url).settings.database_url == database_url
