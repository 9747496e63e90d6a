"""What can be broken about schedules, and is noticed."""

from __future__ import annotations

from typing import Any

from penstock.schedules import backfill, declare, launch, rows
from penstock.schedules.fire import Batch, DueSchedule, Firing
from penstock.schedules.times import next_tick
from tests.simulation.mutants import Code, Instead, Mutant, Sql
from tests.simulation.mutants.tasks import LOCAL


def _advance_first(self: Firing, *, waiting: bool = False) -> bool:
    """The next time is advanced in one transaction, and the job inserted in another."""

    def advance(tx: Any) -> list[rows.ScheduleRow]:
        found = [rows.row_of(row) for row in tx.rows(rows.DUE, limit=10)]
        for row in found:
            after = next_tick(row.defined.spec(row.created_at), row.now)
            tx.run(rows.MOVE, next_at=after, due_at=after, ids=[row.id])
        return found

    found = self.host.database.in_transaction(advance)
    return self._tell(self.host.database.in_transaction(self.fire_rows, found)) if found else False


MUTANTS: dict[str, Mutant] = {
    "the key has no nominal time": Mutant(
        0, Code(launch.Launch.add, '_key(options.get("key"), nominal)', "row.id")
    ),
    "the next time is advanced before the insert": Mutant(
        3, Instead(Firing, "turn", _advance_first), crash=0.02
    ),
    "ticks by the local clock": Mutant(0, Sql(rows, "DUE", ", {now} FROM", f", {LOCAL} FROM")),
    "ticks have no row": Mutant(0, Code(Batch.write, "self._ticks)", "self._ticks[1:])")),
    "what is skipped is not written down": Mutant(
        5, Code(DueSchedule.fire_due, "decision.skipped, TickOutcome", "[], TickOutcome")
    ),
    "what passes in a pause is forgotten": Mutant(
        7, Code(declare.account_paused, "rows.write_ticks(tx,", "rows.write_ticks(tx, []) if True else (tx,")
    ),
    "a backfill fires what has fired": Mutant(
        3, Code(backfill._known, "return {int(nominal)", "return {} and {int(nominal)")
    ),
    "what waits is never looked at again": Mutant(
        24, Code(DueSchedule.fire_waiting, "self.look_at.append(self.now + LOOK_AGAIN)", "pass")
    ),
}
