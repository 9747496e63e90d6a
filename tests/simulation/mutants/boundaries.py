"""Mutants of the boundaries around rows: one poisoned row then stops the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json

from penstock.database.boundary import Boundary
from penstock.pipelines.maintenance.chores import Chores
from penstock.queue import reclaim
from tests.simulation.mutants import Code, Instead, Mutant

POISONED = {"poison": 0.05, "crash": 0.02, "outage": 0.0}


def _together(_: Boundary[Any], keys: Sequence[Any], work: object, error: Exception) -> list[Any]:
    """All of them wait for the one that cannot be handled."""
    raise error


def _read_all(text: Any) -> list[str]:
    """A receipt that cannot be read is everybody's."""
    return [job_id.lower() for job_id in from_json(text)]


JOBS = {
    "rows are not told apart": Mutant(1, Instead(Boundary, "handle_apart", _together), **POISONED),
    "a receipt that cannot be read": Mutant(1, Instead(reclaim, "jobs_of_receipt", _read_all), **POISONED),
}
RUNS = {
    "a timer is not put off": Mutant(
        17, Code(Chores.take_timer, "self._put_off(taken[-1], error)", "raise"), **POISONED
    ),
}
