"""How the database finds ready jobs: a lane by its place in the index, however full the others are."""

import pytest

from penstock import Penstock
from penstock.queue.claim import FIRST_QUEUE, FIRST_TIER, LOWEST_TIER
from tests.conformance.tasks.looking import rows

PICK = """
SELECT job_id FROM {availabilities} WHERE queue = :queue AND tier = :tier AND seq > 0 ORDER BY seq LIMIT 10
"""
LOOKS: dict[str, tuple[str, dict[str, object]]] = {
    "first queue": (FIRST_QUEUE, {"queue": "busy"}),
    "first tier": (FIRST_TIER, {"queue": "quiet", "tier": LOWEST_TIER}),
    "jobs of a lane": (PICK, {"queue": "quiet", "tier": 0}),
}
EXPLAIN = {"sqlite": "EXPLAIN QUERY PLAN", "postgres": "EXPLAIN", "mariadb": "EXPLAIN"}
WHOLE_TABLE = {
    "sqlite": ("SCAN",),
    "postgres": ("Seq Scan", "Filter:", "Sort"),
    "mariadb": ("'ALL'", "'index'", "filesort"),
}
ANALYZE = {
    "sqlite": "ANALYZE",
    "postgres": "ANALYZE {availabilities}",
    "mariadb": "ANALYZE TABLE {availabilities}",
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_quiet_queue_is_found_beside_a_busy_one(app: Penstock, database_kind: str, look: str) -> None:
    @app.task(name="note")
    def note(number: int) -> None: ...

    note.options(queue="busy").enqueue_many([(number,) for number in range(2_000)])
    note.options(queue="quiet").enqueue(1)
    app.database.in_transaction(lambda tx: tx.run(ANALYZE[database_kind]))
    sql, given = LOOKS[look]
    plan = [str(row) for row in rows(app, f"{EXPLAIN[database_kind]} {sql}", **given)]
    assert plan
    for line in plan:
        assert not any(word in line for word in WHOLE_TABLE[database_kind]), plan
