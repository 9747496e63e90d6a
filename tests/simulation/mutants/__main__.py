"""Which seed shows which mutant: for the record, when the code has come to take other steps."""

from __future__ import annotations

import sys

from tests.simulation.mutants.known import MUTANTS, caught_by, stages


def main(wanted: list[str]) -> None:
    with stages() as made:
        for (about, name), mutant in MUTANTS.items():
            if wanted and name not in wanted:
                continue
            seed = caught_by(made[about], mutant)
            note = "" if seed == mutant.seed else f" instead of {mutant.seed}: put it on record"
            sys.stdout.write(f"{about}: {name}: {seed}{note}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
