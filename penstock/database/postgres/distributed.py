"""PostgreSQL-compatible engines that lack some of its features: the setting `profile="distributed"`.

Nothing here asks for NOTIFY, advisory locks, SKIP LOCKED, physical row addresses or settings of PostgreSQL's planner.
Every transaction is serializable, so the engine refuses what two of them must not both do; a refusal (40001) is tried
again like every other error that passes. A claim picks without a lock and holds through a guarded update. As behind a
transaction pooler, nothing outlives a transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from penstock.database.cursor_dialect import REMOVE, ByCursor
from penstock.database.dialect import WITHOUT_ONE_STATEMENT
from penstock.database.postgres.dialect import Postgres

if TYPE_CHECKING:
    from penstock.database.transaction import Transaction
    from penstock.settings import Settings

BEGIN = "BEGIN ISOLATION LEVEL SERIALIZABLE"
TIMEOUTS = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
"""Those of our timeouts that such engines know."""


class Distributed(Postgres):
    """PostgreSQL's protocol and SQL; conflicts are found by the engine."""

    lock_skip = ""
    lateral = False
    fast_path = WITHOUT_ONE_STATEMENT
    pipelines_statements = False
    pushes_wakeups = False
    undoes_for_others = True
    remove = REMOVE
    take_ready = ByCursor.take_ready
    succeed = ByCursor.succeed

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings.with_changes(pooler="transaction"))
        statement, lock = int(settings.statement_timeout * 1000), int(settings.lock_timeout * 1000)
        values = zip(TIMEOUTS, (statement, lock, statement * 2), strict=True)
        self.pooled_begin = "; ".join([BEGIN, *(f"SET LOCAL {name} = {value}" for name, value in values)])

    def connected(self, driver: Any) -> None:
        """SQLAlchemy's transactions, the user's among them, are begun by the driver."""
        driver.isolation_level = psycopg.IsolationLevel.SERIALIZABLE

    def dedicate(self, driver: Any, patience: float | None) -> bool:
        if patience is not None:
            self._wire(driver).patience = min(patience, self._longest)
        return True

    def go_by_index(self, tx: Transaction) -> None:
        """The planner is the engine's own."""

    def commit_stamp(self, tx: Transaction) -> str | None:
        """Not every engine of this kind can tell."""
        return None

    def begin_reading(self, driver: Any) -> object:
        """Each statement by itself: a transaction would go on seeing what was true when it began."""
        driver.autocommit = True
        driver.patience = self._wire(driver).patience
        return None
