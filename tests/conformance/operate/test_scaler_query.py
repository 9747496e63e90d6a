"""operate/overview: the query for KEDA in `deploy/`: its answer, and that it touches the same rows however much
waits or is finished.
"""

import re
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from penstock import Penstock
from penstock.testing import drain
from tests.conformance.operate.helpers import register, take
from tests.plans.measuring import touched

DEPLOY = Path(__file__).parents[3] / "deploy/keda"
CAP = 5000
FILES = {"postgresql": "postgresql.yaml", "mysql": "mysql.yaml"}
ANALYZE = {
    "postgresql": "ANALYZE penstock_availabilities",
    "mysql": "ANALYZE TABLE penstock_availabilities",
}


def query_for(app: Penstock) -> str:
    name = FILES.get(app.database.engine.dialect.name)
    if name is None:
        pytest.skip("KEDA has no scaler for it")
    found = re.search(r"query: >-\n(.*)\Z", (DEPLOY / name).read_text(), re.DOTALL)
    assert found is not None
    return " ".join(found[1].split())


def become_the_scaler(connection: Connection) -> None:
    """Have the settings of the role that the scaler logs in as."""
    if connection.dialect.name == "postgresql":
        for setting in re.findall(r"SET (\w+ = \w+);", (DEPLOY / "postgresql.sql").read_text()):
            connection.execute(text(f"SET LOCAL {setting}"))


def rows_touched(connection: Connection, query: str) -> int:
    if connection.dialect.name == "postgresql":
        (plan,) = connection.execute(text(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {query}")).scalar_one()
        return touched(plan["Plan"])
    connection.execute(text("FLUSH STATUS"))
    connection.execute(text(query)).all()
    counted: Any = connection.execute(text("SHOW SESSION STATUS LIKE 'Handler_read%'")).all()
    return sum(int(value) for _, value in counted)


def test_what_is_ready_and_what_runs_is_counted_at_the_same_cost(app: Penstock) -> None:
    query = query_for(app)
    work = app.task(name="work")(print)
    work.enqueue_many([()] * 10)
    drain(app)
    work.enqueue_many([()] * (CAP + 1000))
    work.options(queue="other").enqueue_many([()] * 100)
    process = register(app)
    claimed = len(take(app, process, limit=7, only="default"))
    assert len(take(app, process, limit=40, only="other")) == 40, "of another queue: not to be counted"

    def asked() -> tuple[int, int]:
        with app.database.engine.connect() as connection:
            become_the_scaler(connection)
            return int(connection.execute(text(query)).scalar_one()), rows_touched(connection, query)

    answer, before = asked()
    assert (answer, claimed) == (CAP + 7, 7)
    work.enqueue_many([()] * 4 * CAP)
    for statistics in ("old", "new"):
        if statistics == "new":
            with app.database.engine.connect() as connection:
                connection.execute(text(ANALYZE[connection.dialect.name]))
        answer, after = asked()
        assert answer == CAP + 7
        assert after <= before + 10 <= 4 * CAP, statistics
