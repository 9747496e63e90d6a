"""schema/migrate: a database that an earlier version has left in the middle of its work is brought up to date, and
the work goes on.
"""

from collections.abc import Callable

import pytest
from sqlalchemy import Connection, inspect, text

from penstock import Penstock, wait_for
from penstock.schema import migrate
from penstock.schema.version import LATEST
from penstock.testing import drain

AppOn = Callable[..., Penstock]

ADDED: dict[int, dict[str, tuple[str, ...]]] = {
    2: {"audits": ()},
    3: {"runs": ("rerun_of", "redefined", "reserved")},
    4: {"limits": (), "slots": (), "parked": ()},
    5: {"element_signals": ()},
    6: {"run_labels": ()},
    7: {"processes": ("reap_after",)},
    8: {"limits": ("lock_count",), "runs": ("lock_count",)},
    9: {"schedules": (), "schedule_ticks": (), "runs": ("scheduled_for",)},
    10: {"job_labels": (), "job_followers": (), "queue_controls": ()},
    11: {
        "tallies": (),
        "rollups": (),
        "queue_samples": (),
        "dead_letters": ("error_type", "place", "fingerprint"),
    },
    12: {"stack_dumps": ()},
    13: {
        "run_lines": (),
        "run_places": (),
        "signals": ("headers",),
        "element_signals": ("headers",),
    },
    14: {"runs": ("forked_from",)},
}
"""What each version has brought: tables, or columns of a table that was there."""


class Shop:
    """Tasks and a pipeline, as before and after the upgrade."""

    def __init__(self, app: Penstock) -> None:
        self.app = app

        @app.task(name="double")
        def double(number: int) -> int:
            return number * 2

        @app.task(name="refuse", retries=0)
        def refuse() -> None:
            raise ValueError("no")

        @app.task(name="numbers")
        def numbers() -> list[int]:
            return [1, 2, 3]

        @app.task(name="total")
        def total(values: list[int], answer: str) -> str:
            return f"{sum(values)} {answer}"

        @app.pipeline(name="approved")
        def approved() -> object:
            return total(double.map(numbers()).collect(), wait_for("approve"))

        self.double, self.refuse, self.approved = double, refuse, approved


def _drop_indexes(app: Penstock, connection: Connection, table: str, column: str) -> None:
    """Drop the indexes of a column, which SQLite does not drop with it."""
    for index in inspect(connection).get_indexes(f"{app.database.prefix}{table}", app.database.schema):
        if column in index["column_names"] and app.database.dialect.name == "sqlite":
            connection.execute(text(f"DROP INDEX {index['name']}"))


def go_back_to(app: Penstock, version: int) -> None:
    """Take away what later versions have brought, and leave what is in the rest."""
    with app.database.engine.begin() as connection:
        for number in range(LATEST, version, -1):
            for table, columns in ADDED[number].items():
                named = app.database.qualified(table)
                if not columns:
                    connection.execute(text(f"DROP TABLE {named}"))
                for column in columns:
                    _drop_indexes(app, connection, table, column)
                    connection.execute(text(f"ALTER TABLE {named} DROP COLUMN {column}"))
        versions = app.database.qualified("schema_versions")
        connection.execute(text(f"DELETE FROM {versions} WHERE version > {version}"))


def test_everything_that_a_version_has_brought_is_known_here() -> None:
    assert sorted(ADDED) == list(range(2, LATEST + 1))


@pytest.mark.parametrize("version", range(1, LATEST))
def test_the_work_of_an_earlier_version_goes_on(app: Penstock, make_app: AppOn, version: int) -> None:
    old = Shop(app)
    done, failed = old.double.enqueue(1), old.refuse.enqueue()
    run = old.approved.trigger()
    drain(app)
    waiting = old.double.enqueue(2)
    keyed = old.double.options(key="order:3", delay=3600).enqueue(3)
    go_back_to(app, version)

    new = Shop(make_app())
    assert new.app.job(done.id).result() == 2
    assert [job.id for job in new.app.dead_letters()] == [failed.id]
    assert new.double.options(key="order:3").enqueue(3).id == keyed.id
    assert new.app.run(run.id).status == "running"
    new.app.run(run.id).signal("approve", "yes")
    drain(new.app)
    assert new.app.job(waiting.id).result() == 4
    assert new.app.run(run.id).result() == "12 yes"
    assert migrate.look(new.app.database) == LATEST
