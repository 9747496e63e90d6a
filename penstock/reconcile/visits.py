"""Asking for visits: particular rows are looked at next, whatever their interval says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from penstock.database.engine import Database
from penstock.database.statements import Statements
from penstock.database.transaction import Transaction
from penstock.doors import Doors
from penstock.errors import DefinitionError
from penstock.queue.wakeups import Wakeups
from penstock.reconcile.columns import from_micros
from penstock.reconcile.hints import stirred
from penstock.reconcile.keys import in_order
from penstock.reconcile.statements import change_rows
from penstock.reconcile.target import Key, Target, recognize

log = logging.getLogger("penstock")


class HintHost(Protocol):
    """What a hint needs of the app."""

    database: Database
    wakeups: Wakeups
    doors: Doors


def hint(host: HintHost, model: Any, ids: Sequence[Any]) -> None:
    """Tell everybody that there is something to look at. What is no table is said, not raised: it is only a hint."""
    try:
        target = recognize(model)
    except DefinitionError as error:
        log.warning("a hint leads nowhere: %s", error)
        return
    if ids:
        keys = [target.key_given(id) for id in ids]
        host.database.in_transaction(request, host.database, target, keys)
    host.wakeups.tell(stirred(target.name))


async def hint_async(host: HintHost, model: Any, ids: Sequence[Any]) -> None:
    """For async callers. Without ids nothing is written and nobody waited for: that needs no thread."""
    if ids:
        await host.doors.run(hint, host, model, ids)
    else:
        hint(host, model, ids)


def request(tx: Transaction, database: Database, target: Target, keys: Sequence[Key]) -> None:
    """Heard also by whoever is working on the rows right now: they are visited once more afterwards."""
    tx.stage("request_visits")
    statements = Statements(database, tx)
    now = from_micros(statements.now())
    statements.run(*change_rows(target, in_order(keys), {"next_process_at": now}))
