"""What can be broken about runs, and is noticed."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.pipelines.advance import finish, join_rows
from penstock.pipelines.lifecycle import signal_rows
from penstock.pipelines.plan import inputs
from penstock.pipelines.run import Run
from penstock.queue import settle
from tests.simulation import virtual
from tests.simulation.mutants import Code, Instead, Mutant


def advance_later(tx: Any, follow: Any, ended: Any) -> None:
    """What follows from a step is written after the step's end, in a transaction of its own."""
    database = virtual.here().here().owner.app.database  # type: ignore[attr-defined]
    tx.after_commit(lambda: database.in_transaction(follow, ended))


_ENQUEUE = finish.enqueue


def tell_later(desk: Any, tx: Any, *end: Any) -> None:
    """The callbacks of a run are enqueued after its end, in a transaction of their own."""
    tx.after_commit(lambda: desk.host.database.in_transaction(partial(_ENQUEUE, desk), *end))


LATER = "__import__('tests.simulation.mutants.runs', fromlist=['x']).advance_later(tx, follow, ended)"

MUTANTS: dict[str, Mutant] = {
    "settled before the advance": Mutant(
        2,
        Code(settle._follow, "follow(tx, ended, offer)", LATER),
    ),
    "callbacks outside of the terminal transaction": Mutant(
        0,
        Instead(finish, "enqueue", tell_later),
    ),
    "a step held at once without a receipt": Mutant(
        1,
        Code(settle._follow, "queue_claim.write_receipt(tx, offer)", "None"),
    ),
    "join counted down twice": Mutant(
        0,
        Code(
            join_rows._added, "before.still_open - arrival.tokens", "before.still_open - 2 * arrival.tokens"
        ),
    ),
    "join never counted down": Mutant(
        0,
        Code(join_rows._added, "before.still_open - arrival.tokens", "before.still_open"),
    ),
    "elements collected in another order": Mutant(
        6,
        Code(inputs._node_value, "for index in range(width)", "for index in reversed(range(width))"),
    ),
}
CHILDREN: dict[str, Mutant] = {
    "an offer that outlives its receipt": Mutant(
        25,
        Code(finish.follow, "trace.offer = None", "pass"),
    ),
}
SIGNALS: dict[str, Mutant] = {
    "signals delivered by their giver only": Mutant(
        1,
        Code(signal_rows.write, "timers.set(tx, timers.SIGNAL, run, data=name)", "pass"),
        Instead(Run, "_deliver", lambda *_: None),
    ),
}
