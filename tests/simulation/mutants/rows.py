"""What can be broken about reconcilers, and is noticed."""

from __future__ import annotations

from typing import Any

from penstock.database.user.statements import Statements
from penstock.reconcile import apply, claim, leases, related_rows, statements
from penstock.reconcile.row_lock import RowLock
from penstock.reconcile.statements import Fetch
from penstock.runtime.executors.async_executor import LoopExecutor
from penstock.runtime.reconcilers.runner import Runner
from tests.simulation.mutants import Code, Instead, Mutant


def _only_itself(item: Any, current: Any) -> bool:
    """The row's own token is compared, those of its related rows are not."""
    row = current.get((item.target, item.claim.key))
    return row is not None and row["lock_token"] == item.token


MUTANTS: dict[str, Mutant] = {
    "apply without the token": Mutant(
        16,
        Instead(apply, "_is_held", lambda *_: True),
    ),
    "children not all or nothing": Mutant(
        2,
        Code(related_rows.take, "if all(_is_free(", "if not places or any(_is_free("),
    ),
    "lease renewed without the token": Mutant(
        3,
        Code(
            statements.renew,
            'and_(target.among(keys), among(target["lock_token"], tokens))',
            "target.among(keys)",
        ),
        Instead(leases.HeldRows, "overdue", lambda *_: []),
        stall=0.1,
        linger=0.3,
    ),
    "row tokens used again": Mutant(
        0,
        Instead(claim, "new_token", lambda: 7),
    ),
    "leases by the local clock": Mutant(
        0,
        Code(Statements.ask_now, "SELECT {now}", "SELECT sim_host_now()"),
    ),
    "rows kept by a stop's last turn": Mutant(
        3,
        Instead(Runner, "give_back", lambda _: None),
        home=1.0,
    ),
    "a row's handler that never began does not end": Mutant(
        16,
        Code(LoopExecutor.interrupt, "if not work.started:", "if False:"),
        home=1.0,
        stall=0.04,
        linger=0.1,
    ),
    "related rows stay locked": Mutant(
        0,
        Code(apply._plan, "writes.unlock(held.target, held.key)", "pass"),
    ),
}
ASKING: dict[str, Mutant] = {
    "rows taken from the living": Mutant(
        4,
        Code(Fetch.__init__, "or_(expires.is_(None), expires <= now)", "true()"),
    ),
    "a request for a visit forgotten": Mutant(
        4,
        Code(apply._plan, 'row["x_next_process_at"] if requested else now', "now"),
    ),
}
WRITERS: dict[str, Mutant] = {
    "a writer whose commit fails is waited for": Mutant(
        11,
        Code(
            RowLock.__exit__,
            "    self._withdraw()\n        raise",
            "    self._announced = False\n        raise",
        ),
        commit=0.3,
        statement=0.0,
        trouble=220,
    ),
}
FAMILIES: dict[str, Mutant] = {
    "apply without the tokens of related rows": Mutant(
        20,
        Instead(apply, "_is_held", _only_itself),
        freeze=0.04,
    ),
}
