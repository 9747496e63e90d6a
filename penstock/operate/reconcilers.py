"""Reads the state of reconcilers: due, held and failing rows, and the columns that their tables lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Engine, Index, and_, func, inspect, select
from sqlalchemy.schema import CreateColumn, CreateIndex

from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.database.user.statements import Statements
from penstock.reconcile.columns import EPOCH, HOLDING, NAMES, from_micros
from penstock.reconcile.leases import targets
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.statements import Fetch
from penstock.reconcile.table import Target

COUNT_LIMIT = 10_000
COUNTS = """
SELECT reconciler, SUM(processed), SUM(failed), SUM(lost),
       SUM(CASE WHEN updated_at > {now} - 30000000 THEN rate ELSE 0 END)
FROM {reconciler_counts} GROUP BY reconciler
"""
FAILING = """
SELECT reconciler, row_key, attempts, error_type, error, failed_at, traceback FROM {row_failures}
ORDER BY failed_at DESC LIMIT :limit
"""


@dataclass(frozen=True, slots=True)
class FailingRow:
    """A row whose last visit ended with an error."""

    reconciler: str
    row: str
    attempts: int
    error: str
    failed_at: int
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class ReconcilerRow:
    """The state of a reconciler. Counts end at `COUNT_LIMIT`."""

    name: str
    table: str
    eligible: int
    locked: int
    expired: int
    lag: float | None
    """How long the oldest due row has waited, in seconds; None: nothing waits."""
    oldest_visit: float | None
    """Seconds since the visit of the row that was not visited for the longest time."""
    rate: float
    """Visits a second, lately."""
    processed: int
    failed: int
    lost: int


@dataclass(frozen=True, slots=True)
class MissingObject:
    """Something that a table needs and does not have, and the statement that adds it."""

    table: str
    what: str
    sql: str
    vital: bool = True
    """False for an index: without it the reconciler works, but slowly."""


def look(database: Database, reconcilers: Iterable[Reconciler]) -> list[ReconcilerRow]:
    """The state of every reconciler, by name."""
    return database.in_transaction(look_within, database, reconcilers)


def look_within(
    tx: Transaction, database: Database, reconcilers: Iterable[Reconciler]
) -> list[ReconcilerRow]:
    """The same in a transaction of the caller's, with its time limit."""
    statements = Statements(database, tx)
    now = from_micros(statements.now())
    counts = {str(row[0]): row[1:] for row in tx.rows(COUNTS)}
    chosen = sorted(reconcilers, key=lambda reconciler: reconciler.name)
    return [_row(statements, Fetch(one, database.engine), one, counts, now) for one in chosen]


def failing(tx: Transaction, limit: int = 50) -> list[FailingRow]:
    """Rows that fail, the latest first."""
    found = tx.rows(FAILING, limit=limit)
    return [
        FailingRow(name, key, attempts, f"{kind}: {error}", at, traceback)
        for name, key, attempts, kind, error, at, traceback in found
    ]


def lacks(engine: Engine, reconcilers: Iterable[Reconciler]) -> list[MissingObject]:
    """Find columns and indexes that the tables lack, with the statements of the migration."""
    inspector = inspect(engine)
    found: list[MissingObject] = []
    for target, owners in targets(reconcilers).items():
        table = target.table
        if not inspector.has_table(table.name, schema=table.schema):
            found.append(
                MissingObject(
                    target.name, "the table itself", "-- create it first, such as with metadata.create_all()"
                )
            )
            continue
        there = {column["name"] for column in inspector.get_columns(table.name, schema=table.schema)}
        needed = NAMES if owners else HOLDING
        found += [_lacking_column(engine, target, name) for name in needed if name not in there]
        indexes = {index["name"] for index in inspector.get_indexes(table.name, schema=table.schema)}
        found += [
            _lacking_index(engine, target, index)
            for index in table.indexes
            if index.name not in indexes
            and _is_for(engine, index)
            and any(index.name in o.index_names for o in owners)
        ]
    return found


def _row(
    statements: Statements, fetch: Fetch, reconciler: Reconciler, counts: Mapping[str, Any], now: datetime
) -> ReconcilerRow:
    target = reconciler.target
    abandoned = now - timedelta(seconds=reconciler.policy.lease_seconds)
    values = {"now": now, "abandoned": abandoned}
    eligible = and_(fetch.ready, fetch.due, fetch.takeable)
    held = and_(target["lock_owner"] == reconciler.name, target["lock_expires_at"] > now)
    expired = and_(target["lock_owner"] == reconciler.name, target["lock_expires_at"] <= now)
    due = _one(
        statements,
        select(func.min(target["next_process_at"])).where(eligible, target["next_process_at"] > EPOCH),
        values,
    )
    visited = _one(statements, select(func.min(target["last_processed_at"])).where(fetch.ready), values)
    processed, failed, lost, rate = counts.get(reconciler.name, (0, 0, 0, 0.0))
    return ReconcilerRow(
        reconciler.name,
        target.name,
        _count(statements, target, eligible, values),
        _count(statements, target, held, values),
        _count(statements, target, expired, values),
        None if due is None else max(0.0, (now - due).total_seconds()),
        None if visited is None else max(0.0, (now - visited).total_seconds()),
        float(rate),
        int(processed),
        int(failed),
        int(lost),
    )


def _count(
    statements: Statements, target: Target, condition: ColumnElement[bool], values: Mapping[str, Any]
) -> int:
    some = select(*target.key).where(condition).limit(COUNT_LIMIT).subquery()
    return int(_one(statements, select(func.count()).select_from(some), values))


def _one(statements: Statements, statement: Any, values: Mapping[str, Any]) -> Any:
    return statements.rows(statement, values)[0][0]


def _lacking_column(engine: Engine, target: Target, name: str) -> MissingObject:
    column = CreateColumn(target.table.c[name]).compile(dialect=engine.dialect)
    table = engine.dialect.identifier_preparer.format_table(target.table)
    return MissingObject(
        target.name, f"the column {name}", f"ALTER TABLE {table} ADD COLUMN {str(column).strip()};"
    )


def _lacking_index(engine: Engine, target: Target, index: Index) -> MissingObject:
    sql = str(CreateIndex(index).compile(dialect=engine.dialect)).strip()
    return MissingObject(target.name, f"the index {index.name}", f"{sql};", vital=False)


def _is_for(engine: Engine, index: Index) -> bool:
    condition: Any = index._ddl_if
    return condition is None or engine.dialect.name in condition.dialect
