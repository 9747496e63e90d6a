"""reconcile/statements: how the database finds the rows: by the reconciler's own index, and without standing in the
way of others.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import (
    Column,
    Connection,
    DateTime,
    Integer,
    MetaData,
    String,
    Table,
    and_,
    event,
    func,
    insert,
    text,
)

from penstock import Penstock
from penstock.reconcile.columns import reconcilable_columns
from penstock.telemetry import fault_points
from penstock.testing.drain_rows import ManualReconciler
from tests.conformance.reconcile.claim.test_claims import now
from tests.conformance.reconcile.cloud import Cloud, Fleet, Instance, declare

Hands = Callable[..., ManualReconciler]
ANALYZE = {"sqlite": "ANALYZE", "postgres": "ANALYZE parts", "mariadb": "ANALYZE TABLE parts"}


CONDITIONS: dict[str, Callable[[Table], Any]] = {
    "states": lambda parts: parts.c.state.in_(["new", "odd"]),
    "a state and the time": lambda parts: and_(parts.c.state == "new", parts.c.at < func.now()),
    "words": lambda _: text("state = 'new' OR state = 'odd'"),
}


@pytest.mark.parametrize("asked", CONDITIONS)
@pytest.mark.parametrize("look", ["statement", "next_due"])
def test_rows_are_found_by_the_reconcilers_own_index(
    app: Penstock, cloud: Cloud, database_kind: str, look: str, asked: str
) -> None:
    if asked == "words" and database_kind == "mariadb":
        pytest.skip("it has no partial indexes, and which columns the text reads is unknown")
    key, state = Column("id", Integer, primary_key=True), Column("state", String(20))
    parts = Table("parts", MetaData(), key, state, Column("at", DateTime), *reconcilable_columns())
    reconciler = declare(app, parts, where=CONDITIONS[asked](parts), name="planned")
    parts.create(cloud.engine)
    cloud.add(parts, *[{"id": number, "state": "old"} for number in range(1, 3001)])
    with cloud.engine.begin() as connection:
        connection.execute(text(ANALYZE[database_kind]))
    moment = now(app)
    given = {"now": moment, "abandoned": moment - timedelta(30), "soon": moment + timedelta(3)}
    with ManualReconciler(app, reconciler) as hand, cloud.engine.connect() as connection:
        statement = getattr(hand.source.fetch, look)
        with explaining(connection, "EXPLAIN QUERY PLAN" if database_kind == "sqlite" else "EXPLAIN"):
            plan = connection.execute(statement, given | {"limit": 20}).cursor.fetchall()
    lines = [str(row) for row in plan if "parts" in str(row)]
    assert lines
    for line in lines:
        assert any(name in line for name in reconciler.index_names), plan


@contextmanager
def explaining(connection: Connection, word: str) -> Iterator[None]:
    def explain(_conn: Any, _cursor: Any, sql: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        return f"{word} {sql}", parameters

    event.listen(connection, "before_cursor_execute", explain, retval=True)
    try:
        yield
    finally:
        event.remove(connection, "before_cursor_execute", explain)


def test_a_claim_does_not_keep_others_from_referring_to_its_rows(
    app: Penstock, cloud: Cloud, hand: Hands, database_kind: str
) -> None:
    """A plain FOR UPDATE conflicts with the check of a foreign key, and that has ended in deadlocks."""
    if database_kind != "postgres":
        pytest.skip("only PostgreSQL knows a row lock that lets foreign keys through")
    cloud.add(Fleet, {"id": 1})
    mine = hand(declare(app, Fleet))
    inserted: list[int] = []

    def refer(point: str) -> None:
        if point in ("claim_rows.commit", "apply_rows.commit"):
            with cloud.engine.begin() as connection:
                connection.execute(text("SET LOCAL lock_timeout = '2s'"))
                number = len(inserted) + 1
                connection.execute(insert(Instance).values(id=number, fleet_id=1))
                inserted.append(number)

    with fault_points.watching(refer):
        assert mine.visit() == 1
    assert inserted == [1, 2]
