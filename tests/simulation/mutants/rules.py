"""What can be broken about unique keys, replaced and expired jobs, callbacks and followers, and is noticed."""

from __future__ import annotations

from penstock.queue import settle, states
from penstock.queue.rules import followers, second_look, unique_keys
from tests.simulation.mutants import Code, Mutant, Sql

MUTANTS: dict[str, Mutant] = {
    "a key is given away while its job is pending": Mutant(
        0, Code(unique_keys._keeps_key, "status is not None and not status.terminal", "False")
    ),
    "a job is replaced although it has started": Mutant(
        3, Code(unique_keys._keeps_key, "status in WAITING and generation == 0 and ", "status and ")
    ),
    "a job expires although it has started": Mutant(1, Code(second_look.look, "not begun and ", "")),
    "callbacks are forgotten": Mutant(1, Code(settle._tell_followers, "if calling:", "if False:")),
    "callbacks are called twice": Mutant(
        1,
        Code(followers.call_back, "for spec in _callbacks_of(job)", "for spec in [*_callbacks_of(job)] * 2"),
    ),
    "a retry forgets who follows": Mutant(0, Sql(states, "PUT_BACK", states.STILL_FOLLOWED, "NULL")),
}
