"""What can be broken about limits, and is noticed."""

from __future__ import annotations

from penstock.queue import states
from penstock.queue.limits import admission, slots, waiting_line
from penstock.runtime.liveness.limit_keeper import LimitKeeper
from penstock.runtime.pump.limiter import Limiter
from tests.simulation.mutants import Code, Instead, Mutant, Sql
from tests.simulation.mutants.tasks import LOCAL

MUTANTS: dict[str, Mutant] = {
    "limits are not looked at": Mutant(3, Code(admission._has_room, "key.free > 0 and", "True and")),
    "a refused job runs all the same": Mutant(
        3, Code(Limiter.admit, "for claim in free} | found.admitted", "for claim in claims} | found.admitted")
    ),
    "slots are not counted": Mutant(3, Sql(slots, "USAGE", "s.until > {now}", "s.until < 0")),
    "rates are forgotten too soon": Mutant(0, Sql(slots, "UNTIL", "{now} + :wait", "{now} + :wait / 2")),
    "rates by the local clock": Mutant(0, Sql(slots, "UNTIL", "{now}", LOCAL)),
    "whoever waits is lost": Mutant(
        3, Code(waiting_line.park, 'tx.insert("parked", rows,', 'tx.insert("parked", rows[1:],')
    ),
    "nobody looks after the lines": Mutant(
        1,
        Instead(LimitKeeper, "_sweep", lambda _: False),
        crash=0.02,
    ),
    "a job that waits spends an attempt": Mutant(3, Sql(states, "PARK", "generation - 1", "generation + 1")),
}
