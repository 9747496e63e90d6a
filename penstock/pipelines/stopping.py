"""Telling what runs in a run to stop: its steps and its children are told at once, and given up on after a grace."""

from __future__ import annotations

from penstock.database.transaction import Transaction
from penstock.pipelines import timers

GRACE = 10.0
"""Seconds that a step has to stop by itself, where nobody says how many."""


def tell(tx: Transaction, run: str, grace: float = GRACE) -> None:
    """Leave timers for it: whoever decides this holds the run's row, and locks nothing after it."""
    timers.set(tx, timers.INTERRUPT, run)
    timers.set(tx, timers.CHILDREN, run, data=f"{grace:g}")
    timers.set(tx, timers.GIVE_UP, run, after=grace)
