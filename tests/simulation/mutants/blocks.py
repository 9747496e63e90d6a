"""What can be broken about blocks that are left too early, and is noticed."""

from __future__ import annotations

from penstock.async_bridge import AsyncConnection
from penstock.job_transaction import TransactionScope
from tests.simulation.mutants import Code, Mutant

MUTANTS: dict[str, Mutant] = {
    "a block that is left on the way in stays open": Mutant(
        17,
        Code(AsyncConnection.enter, "self._end(error)", "pass"),
    ),
    "who is cancelled commits all the same": Mutant(
        26,
        Code(TransactionScope.__exit__, "if error is not None:", "if isinstance(error, Exception):"),
    ),
}
