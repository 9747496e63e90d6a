"""Asking for visits: particular rows are looked at next, whatever their interval says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from penstock.app_services import AppServices
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.database.user.statements import Statements
from penstock.errors import DefinitionError
from penstock.reconcile.columns import from_micros
from penstock.reconcile.statements import change_rows
from penstock.reconcile.table import Key, Target, in_order, recognize
from penstock.reconcile.wakeup_subjects import stirred

log = logging.getLogger("penstock")


def hint(host: AppServices, model: Any, ids: Sequence[Any]) -> None:
    """Tell everybody that there is something to look at. What is no table is said, not raised: it is only a hint."""
    try:
        target = recognize(model)
    except DefinitionError as error:
        log.warning("a hint leads nowhere: %s", error)
        return
    if ids:
        keys = [target.key_given(id) for id in ids]
        host.database.in_transaction(request, host.database, target, keys)
    host.wakeups.notify(stirred(target.name))


async def hint_async(host: AppServices, model: Any, ids: Sequence[Any]) -> None:
    """For async callers. Without ids nothing is written and nothing waited for: that needs no thread."""
    if ids:
        await host.bridge.run(hint, host, model, ids)
    else:
        hint(host, model, ids)


def request(tx: Transaction, database: Database, target: Target, keys: Sequence[Key]) -> None:
    """Ask for a visit of these rows. A worker that has them right now visits them once more afterwards."""
    tx.stage("request_visits")
    statements = Statements(database, tx)
    now = from_micros(statements.now())
    statements.run(*change_rows(target, in_order(keys), {"next_process_at": now}))
