"""Mutants of the boundaries around rows: one poisoned row then stops the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from penstock.database.boundary import Boundary, do_all
from penstock.pipelines.maintenance.chores import Chores
from penstock.queue import reclaim
from penstock.queue.wakeups import lane_of
from penstock.runtime.liveness.limit_keeper import LimitKeeper
from penstock.runtime.pump.job_source import JobSource
from penstock.runtime.pump.lanes import Lanes
from penstock.runtime.pump.pump import Pump
from penstock.schedules.fire import Firing
from tests.simulation.mutants import Code, Instead, Mutant

POISONED = {"poison": 0.05, "crash": 0.02, "outage": 0.0}


def _together(_: Boundary[Any], keys: Sequence[Any], work: object, error: Exception) -> list[Any]:
    """All of them wait for the one that cannot be handled."""
    raise error


def _read_all(text: Any) -> list[str]:
    """A receipt that cannot be read belongs to every process."""
    return [job_id.lower() for job_id in from_json(text)]


def _breaks(_: object, *__: object) -> bool:
    """A chore that fails in every round."""
    raise LookupError("this chore is broken")


BROKEN_CHORE = Instead(LimitKeeper, "turn", _breaks)
"""Alone it stops no other chore: `test_mutants` shows that."""

JOBS = {
    "chores stop at the first error": Mutant(
        0, BROKEN_CHORE, Code(do_all, "if database.is_passing(error):", "if True:")
    ),
    "any hint names a lane": Mutant(
        40,
        Code(lane_of, "return lane if lane.tier in TIERS else None", "return lane"),
        Code(Lanes.hear, "if not is_queue(queue) or tier not in TIERS:", "if False:"),
        **POISONED,
    ),
    "what cannot be claimed is not set aside": Mutant(
        2,
        Code(JobSource.set_aside, "return queue_claim.put_off", "return False and queue_claim.put_off"),
        **POISONED,
    ),
    "rows are not told apart": Mutant(1, Instead(Boundary, "handle_apart", _together), **POISONED),
    "refused outcome dropped": Mutant(
        80,
        Code(Pump._put_back, "self._refused.append((time.monotonic() + pause, half[0]))", "pass"),
        **POISONED,
    ),
    "a receipt that cannot be read": Mutant(2, Instead(reclaim, "jobs_of_receipt", _read_all), **POISONED),
}
TICKS = {
    "schedules fail together": Mutant(5, Code(Firing.turn, "return self._one_by_one()", "raise"), **POISONED),
}
RUNS = {
    "a timer is not put off": Mutant(
        23, Code(Chores.take_timer, "self._put_off(taken[-1], error)", "raise"), **POISONED
    ),
}
