"""A database that does not let a claim end, whatever the outcome: a trigger refuses it, as a check of a user's may."""

from collections.abc import Iterator
from contextlib import contextmanager

from penstock import Penstock
from penstock.database.transaction import Transaction

MARK = 77
"""The number of retries by which the trigger knows the job."""
REFUSED = f"OLD.retry_count = {MARK} AND OLD.status = 'running' AND NEW.status <> 'running'"
SQLITE = f"""
CREATE TRIGGER refuses BEFORE UPDATE ON {{job_states}} WHEN {REFUSED}
BEGIN SELECT RAISE(ABORT, 'this claim does not end'); END
"""
FUNCTION = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
'BEGIN RAISE EXCEPTION ''this claim does not end''; END'
"""
POSTGRES = f"""
CREATE TRIGGER refuses BEFORE UPDATE ON {{job_states}} FOR EACH ROW WHEN ({REFUSED}) EXECUTE FUNCTION refuse()
"""
MYSQL = f"""
CREATE TRIGGER refuses BEFORE UPDATE ON {{job_states}} FOR EACH ROW
IF {REFUSED} THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'this claim does not end'; END IF
"""
CREATE = {"sqlite": (SQLITE,), "postgresql": (FUNCTION, POSTGRES), "mysql": (MYSQL,)}
DROP = {
    "sqlite": ("DROP TRIGGER refuses",),
    "postgresql": ("DROP TRIGGER refuses ON {job_states}", "DROP FUNCTION refuse()"),
    "mysql": ("DROP TRIGGER refuses",),
}


@contextmanager
def refusing_the_end_of(app: Penstock, job_id: str) -> Iterator[None]:
    """Inside this, the claim of that job stays."""
    dialect = app.database.dialect.name
    app.database.in_transaction(
        lambda tx: tx.run(
            "UPDATE {job_states} SET retry_count = :mark WHERE job_id = :id", mark=MARK, id=job_id
        )
    )
    _run(app, CREATE[dialect])
    try:
        yield
    finally:
        _run(app, DROP[dialect])


def _run(app: Penstock, statements: tuple[str, ...]) -> None:
    def run(tx: Transaction) -> None:
        for statement in statements:
            tx.run(statement)

    app.database.in_transaction(run)
