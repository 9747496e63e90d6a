"""The runs that follow others, seen from the end of one: they are to be looked at now (see `chains`)."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.database.dialect import Ahead, Row
from penstock.database.transaction import Transaction
from penstock.pipelines import timers

DOWNSTREAM = (
    "SELECT DISTINCT downstream_id FROM {chains} WHERE upstream_id {among:ids:uuid} ORDER BY downstream_id"
)


def ask(tx: Transaction, ending: Sequence[str]) -> Ahead:
    """Send for those that follow these runs, which are locked, or are locked by what was sent before."""
    return tx.ahead(DOWNSTREAM, ids=sorted(ending))


def wake(tx: Transaction, followers: Sequence[Row]) -> None:
    """Have them looked at."""
    for (downstream,) in followers:
        timers.set(tx, timers.CHAIN, str(downstream))
