"""queue/claim: how the database finds ready jobs: a lane by its place in the index, however full the others are."""

import re
from collections.abc import Callable

import pytest

from penstock import Penstock
from penstock.database.connections import ConnectionHandle
from penstock.database.postgres.statements import TAKE_READY, TAKE_READY_OF_ONE
from penstock.database.transaction import Transaction
from penstock.queue.claim import FIRST_QUEUE, FIRST_TIER, LOWEST_TIER
from tests.conformance.rows import rows

PICK = """
SELECT job_id FROM {availabilities} WHERE queue = :queue AND tier = :tier AND seq > 0 ORDER BY seq LIMIT 10
"""
LOOKS: dict[str, tuple[str, dict[str, object]]] = {
    "first queue": (FIRST_QUEUE, {"queue": "busy"}),
    "first tier": (FIRST_TIER, {"queue": "quiet", "tier": LOWEST_TIER}),
    "jobs of a lane": (PICK, {"queue": "quiet", "tier": 0}),
}
NOBODY = "00000000-0000-7000-8000-000000000000"
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


def test_statistics_of_an_empty_queue_do_not_mislead_the_claim(app: Penstock, database_kind: str) -> None:
    """The planner believes in next to nothing there, and would sort all that is ready for every claim."""

    @app.task(name="note")
    def note(number: int) -> None: ...

    app.database.in_transaction(lambda tx: tx.run(ANALYZE[database_kind]))
    note.options(queue="quiet").enqueue_many([(number,) for number in range(5_000)])
    sql, given = LOOKS["jobs of a lane"]
    link = ConnectionHandle(app.database, dedicated=True)
    with app.database.transaction(link) as tx:
        plan = [str(row) for row in tx.rows(f"{EXPLAIN[database_kind]} {sql}", **given)]
    link.close()
    assert plan
    for line in plan:
        assert not any(word in line for word in WHOLE_TABLE[database_kind]), plan


@pytest.mark.standard_profile
@pytest.mark.parametrize("pooler", [None, "transaction"])
def test_what_the_queue_sets_for_itself_no_other_connection_gets(
    make_app: Callable[..., Penstock], database_kind: str, pooler: str | None
) -> None:
    if database_kind != "postgres":
        pytest.skip("only PostgreSQL is told how to plan")
    app = make_app(pool_size=1, **({"pooler": pooler} if pooler else {}))
    for link, expected in (
        (ConnectionHandle(app.database, dedicated=True), "off"),
        (ConnectionHandle(app.database), "on"),
    ):
        with app.database.transaction(link) as tx:
            assert tx.row("SHOW enable_bitmapscan") == (expected,)
        link.close()


HOLDER = {
    "tasks": ("text", "''"),
    "limit": ("bigint", "500"),
    "token": ("bigint", "1"),
    "process": ("text", f"'{NOBODY}'"),
}
LANE = {"queue": ("text", "''"), "tier": ("bigint", "0"), "floor": ("bigint", "0")}


@pytest.mark.parametrize(
    ("take", "place"),
    [(TAKE_READY, {"lanes": ("text", "'[]'")}), (TAKE_READY_OF_ONE, LANE)],
    ids=["many lanes", "one lane"],
)
def test_a_claim_never_compares_each_job_with_each(
    app: Penstock, database_kind: str, take: str, place: dict[str, tuple[str, str]]
) -> None:
    """A plan for one row, made when the tables were empty, must do for five hundred."""
    if database_kind != "postgres":
        pytest.skip("only PostgreSQL claims with one statement, and keeps its plan")
    app.prepare()
    given = place | HOLDER
    numbered = {name: f"${number}" for number, name in enumerate(given, 1)}
    sql = re.sub(r"(?<!:):(\w+)", lambda found: numbered[found[1]], take)
    kinds, values = (", ".join(each) for each in zip(*given.values(), strict=True))

    def plan(tx: Transaction) -> list[str]:
        tx.run("SET LOCAL plan_cache_mode = force_generic_plan")
        tx.run(f"PREPARE taking({kinds}) AS {sql}")
        return [str(row) for row in tx.rows(f"EXPLAIN EXECUTE taking({values})")]

    lines = app.database.in_transaction(plan)
    assert any("Full Join" in line for line in lines)
    assert not any("Nested Loop Left Join" in line or "Nested Loop Full" in line for line in lines), lines
