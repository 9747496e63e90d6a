"""Checks the version of the schema, without SQLAlchemy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.errors import SchemaOutdated, SchemaTooNew
from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    from penstock.schema import migrate
else:
    migrate = Lazy("penstock.schema.migrate")

LATEST = 14
NEWEST = "SELECT COALESCE(MAX(version), 0) FROM "


def ensure(database: Database, *, upgrade: bool) -> int:
    """Check the schema and, if allowed, upgrade it. The number of migrations applied."""
    return migrate.upgrade(database) if _is_outdated(_found(database), upgrade) else 0


def _found(database: Database) -> int:
    """Read the version by one plain statement, which succeeds if there is a schema: every process runs it at its
    start."""
    try:
        with database.reading() as tx:
            return _newest(database, tx)
    except Exception as error:
        if database.is_passing(error):
            raise database.explained(error) from error
    return migrate.look(database)


def _newest(database: Database, tx: Transaction) -> int:
    row = tx.row(NEWEST + database.qualified("schema_versions"))
    return int(row[0]) if row is not None else 0


def _is_outdated(found: int, upgrade: bool) -> bool:
    if found > LATEST:
        raise SchemaTooNew(found, LATEST)
    if found < LATEST and not upgrade:
        raise SchemaOutdated(found or None, LATEST)
    return found < LATEST


def ensure_within(database: Database, tx: Transaction, *, upgrade: bool) -> None:
    """On SQLite, where only one transaction can write at a time: make the schema in the caller's own
    transaction. It is there if that commits."""
    name = database.qualified("schema_versions")
    there = tx.row("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = :name", name=name)
    found = 0 if there is None else _newest(database, tx)
    if not _is_outdated(found, upgrade):
        return
    cursor = tx.driver.cursor()
    for statement in migrate.as_sql(database, found).split(";\n"):
        if statement.strip():
            cursor.execute(statement)
