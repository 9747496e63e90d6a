"""database/sequences: a row with the greatest number of all is named and repaired, and rows can be added again."""

from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.database.sequences import COUNTED, SEQUENCE
from penstock.errors import DatabaseUnavailable
from penstock.operate.diagnosis import damage
from penstock.testing import drain
from tests.conformance.operate.test_doctor import bad

GREATEST = 2**63 - 1
TAMPER = f"UPDATE {{availabilities}} SET seq = {GREATEST}"
TALLY = f"""
INSERT INTO {{tallies}} (seq, tallied_at, task, queue, outcome, attempts, failed, run_micros, longest)
VALUES ({GREATEST}, 1, 'note', 'default', 'succeeded', 1, 0, 1, 1)
"""
ORDER = "SELECT job_id FROM {availabilities} ORDER BY seq"


@pytest.fixture
def ran(app: Penstock) -> list[int]:
    done: list[int] = []

    @app.task(name="note")
    def note(number: int) -> None:
        done.append(number)

    app.prepare()
    return done


@pytest.fixture
def postgres_app(postgres_url: str, app_on: Callable[..., Penstock]) -> Penstock:
    return app_on(postgres_url)


def counts_by_rows(app: Penstock) -> bool:
    return app.database.dialect.name != "postgresql"


@pytest.mark.parametrize("removed", [False, True])
def test_a_row_with_the_greatest_number_is_repaired(app: Penstock, ran: list[int], removed: bool) -> None:
    """Also if it is gone, as when it was claimed: MariaDB and MySQL count on from it all the same."""
    note = app.tasks["note"]
    note.enqueue(1)
    app.database.in_transaction(lambda tx: tx.run(TAMPER))
    # An UPDATE need not be counted; an INSERT always is.
    if counts_by_rows(app):
        app.database.in_transaction(
            lambda tx: tx.run(
                f"INSERT INTO {{availabilities}} (queue, tier, seq, job_id, task) "
                f"SELECT queue, tier, {GREATEST - 1}, job_id, task FROM {{availabilities}} WHERE seq = {GREATEST}"
            )
        )
        app.database.in_transaction(
            lambda tx: tx.run(f"DELETE FROM {{availabilities}} WHERE seq = {GREATEST - 1}")
        )
    if removed:
        assert drain(app) == 1
    found = [each for each in damage.find(app.database) if each.subject == "table availabilities"]
    if not counts_by_rows(app):
        assert not found, "PostgreSQL counts apart from its rows"
    elif not removed:
        assert len(found) == 1
        assert "availabilities" in found[0].message
        with pytest.raises(DatabaseUnavailable, match="doctor --repair|full"):
            note.enqueue(2)
    assert all(mended for _, mended in damage.repair(app.database))
    assert not damage.find(app.database)
    note.enqueue_many([(2,), (3,)])
    drain(app)
    assert sorted(ran) == [1, 2, 3]
    assert ran == [1, 2, 3] or not counts_by_rows(app), "in their order"


def test_the_row_keeps_its_place_before_later_ones(app: Penstock, ran: list[int]) -> None:
    note = app.tasks["note"]
    note.enqueue_many([(1,), (2,)])
    last = app.database.read(lambda tx: tx.rows(ORDER))[-1][0]
    app.database.in_transaction(
        lambda tx: tx.run(f"UPDATE {{availabilities}} SET seq = {GREATEST} WHERE job_id = :id", id=last)
    )
    damage.repair(app.database)
    note.enqueue(3)
    drain(app)
    assert ran == [1, 2, 3] or not counts_by_rows(app)


@pytest.mark.parametrize("table", COUNTED)
def test_a_sequence_at_its_end_is_repaired(postgres_app: Penstock, table: str) -> None:
    app = postgres_app
    app.database.in_transaction(
        lambda tx: tx.run(f"ALTER TABLE {{{table}}} ALTER COLUMN seq RESTART WITH {GREATEST}")
    )
    assert not damage.find(app.database), "there is one number left"
    app.database.in_transaction(lambda tx: tx.row(f"SELECT nextval({SEQUENCE % table})"))
    assert [each.subject for each in damage.find(app.database)] == [f"table {table}"]
    assert table in bad(app)["rows"].message
    assert all(mended for _, mended in damage.repair(app.database))
    assert not damage.find(app.database)


def test_an_enqueue_that_finds_no_number_says_what_to_do(postgres_app: Penstock) -> None:
    done: list[int] = []

    @postgres_app.task(name="note")
    def note(number: int) -> None:
        done.append(number)

    postgres_app.database.in_transaction(
        lambda tx: tx.run(f"ALTER TABLE {{availabilities}} ALTER COLUMN seq RESTART WITH {GREATEST - 1}")
    )
    note.enqueue_many([(1,), (2,)])
    with pytest.raises(DatabaseUnavailable, match="doctor --repair"):
        note.enqueue(3)
    assert all(mended for _, mended in damage.repair(postgres_app.database))
    note.enqueue(3)
    drain(postgres_app)
    assert done == [1, 2, 3], "in their order"


def test_tallies_count_too(app: Penstock, ran: list[int]) -> None:
    if not counts_by_rows(app):
        pytest.skip("PostgreSQL counts apart from its rows")
    app.database.in_transaction(lambda tx: tx.run(TALLY))
    assert [each.subject for each in damage.find(app.database)] == ["table tallies"]
    assert "tallies" in bad(app)["rows"].message
    assert all(mended for _, mended in damage.repair(app.database))
    assert not damage.find(app.database)
    app.tasks["note"].enqueue(1)
    drain(app)
    assert ran == [1]


def test_every_table_that_counts_is_known(app: Penstock) -> None:
    prefix = app.database.prefix
    counting = {
        table.name.removeprefix(prefix)
        for table in app.metadata.tables.values()
        if any(column.name == "seq" and column.primary_key for column in table.columns)
    }
    assert counting == set(COUNTED)
