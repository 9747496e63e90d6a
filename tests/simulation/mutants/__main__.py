"""How often each mutant is caught, and by which seed first: for the record, when the code has come to take other steps.

python -m tests.simulation.mutants                     which seed shows each
RATE=100 python -m tests.simulation.mutants [part]     how many of a hundred fresh schedules show each
"""

from __future__ import annotations

import os
import sys
import time

from tests.simulation.mutants import Mutant
from tests.simulation.mutants.known import MUTANTS, caught_by, rate, stages
from tests.simulation.schedule import Stage


def main(wanted: list[str]) -> None:
    with stages() as made:
        for (about, name), mutant in MUTANTS.items():
            if not wanted or any(part in name for part in wanted):
                sys.stdout.write(f"{_told(made[about], mutant)}  {about}: {name}\n")
                sys.stdout.flush()


def _told(stage: Stage, mutant: Mutant) -> str:
    if "RATE" in os.environ:
        first = int(os.environ.get("FIRST", time.time_ns() // 1_000_000))
        return f"{rate(stage, mutant, first, int(os.environ['RATE'])):6.1%}"
    seed = caught_by(stage, mutant)
    return f"{seed}" if seed == mutant.seed else f"{seed} instead of {mutant.seed}: put it on record"


if __name__ == "__main__":
    main(sys.argv[1:])
