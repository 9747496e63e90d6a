"""`app.hint()`: asks for visits of rows before they are due."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from penstock.app_services import AppServices
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.database.user.statements import Statements
from penstock.errors import DefinitionError
from penstock.queue import audit
from penstock.reconcile.columns import from_micros
from penstock.reconcile.statements import change_rows
from penstock.reconcile.table import Key, Target, in_order, recognize
from penstock.reconcile.wakeup_subjects import table_changed
from penstock.values.actor import named_actor

MOST_NAMED = 20
"""Rows of a hint that the audit trail names."""

log = logging.getLogger("penstock")


def hint(host: AppServices, model: Any, ids: Sequence[Any]) -> None:
    """Wake the reconcilers of a table. An object that is no table is logged, not raised: this is only a hint."""
    try:
        target = recognize(model)
    except DefinitionError as error:
        log.warning("a hint leads nowhere: %s", error)
        return
    if ids or named_actor() is not None:
        keys = [target.key_given(id) for id in ids]
        host.database.in_transaction(request, host.database, target, keys)
    host.wakeups.notify(table_changed(target.name))


async def hint_async(host: AppServices, model: Any, ids: Sequence[Any]) -> None:
    """`hint` for async callers. Without ids and without a named actor nothing is written, and no thread is needed."""
    if ids or named_actor() is not None:
        await host.bridge.run(hint, host, model, ids)
    else:
        hint(host, model, ids)


def request(tx: Transaction, database: Database, target: Target, keys: Sequence[Key]) -> None:
    """Ask for a visit of these rows. A worker that has them right now visits them once more afterwards.

    Programs give hints all the time: only those in a person's name are in the audit trail.
    """
    tx.stage("request_visits")
    if named_actor() is not None:
        rows = [str(value) for key in keys[:MOST_NAMED] for value in key] or None
        audit.of_reconcilers(tx, "hint", target.name, rows=rows)
    if not keys:
        return
    statements = Statements(database, tx)
    now = from_micros(statements.now())
    statements.run(*change_rows(target, in_order(keys), {"next_process_at": now}))
