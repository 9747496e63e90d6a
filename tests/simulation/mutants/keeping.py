"""What can be broken about retention, and is noticed."""

from __future__ import annotations

from penstock.pipelines.lifecycle import lineage
from penstock.pipelines.maintenance import retention as run_retention
from penstock.queue import retention
from tests.simulation.mutants import Change, Code, Instead, Mutant, Sql
from tests.simulation.mutants.tasks import LOCAL

PARENT = "AND NOT EXISTS (SELECT 1 FROM {runs} p WHERE p.id = r.parent_run_id)"
FORKS = "AND NOT EXISTS (SELECT 1 FROM {runs} f WHERE f.forked_from = r.id)"
OFTEN = {"retention": 1.0, "trouble": 220}


def _runs(old: str, new: str) -> list[Change]:
    """In the question which run is to go, and in the same question under its lock."""
    return [Sql(run_retention, name, old, new) for name in ("OLDEST", "STILL_FREE")]


def _jobs(old: str, new: str) -> list[Change]:
    return [Sql(retention, name, old, new) for name in ("CANDIDATES", "PRUNABLE")]


JOBS: dict[str, Mutant] = {
    "retention by the local clock": Mutant(0, *_jobs("{now}", LOCAL), **OFTEN),
    "retention of whatever is over": Mutant(
        0, *_jobs("s.finished_at <= {now} - :age", "s.finished_at <= {now}"), **OFTEN
    ),
}
RUNS: dict[str, Mutant] = {
    "steps are removed like jobs": Mutant(0, Sql(retention, "PRUNABLE", "AND j.run_id IS NULL", ""), **OFTEN),
    "retention of runs by the local clock": Mutant(1, *_runs("{now}", LOCAL), **OFTEN),
    "a run goes without its steps": Mutant(
        0, Code(run_retention.prune, "tx.run(removal, ids=ids)", "pass"), **OFTEN
    ),
    "a run goes in pieces": Mutant(
        0, Code(run_retention.prune, "len(ids) == BATCH", "len(ids) > 0"), **OFTEN
    ),
    "retention ignores the parent": Mutant(1, *_runs(PARENT, ""), **OFTEN),
}
KEPT: dict[str, Mutant] = {
    "retention ignores what was revived": Mutant(
        7, Instead(run_retention, "_continued", lambda *_: set()), **OFTEN
    ),
    "retention ignores those that follow": Mutant(19, *_runs("d.ended_at IS NULL", "1 = 0"), **OFTEN),
}
FORKED: dict[str, Mutant] = {
    "retention ignores forks": Mutant(0, *_runs(FORKS, ""), **OFTEN),
    "a fork keeps the step it is to redo": Mutant(
        0, Code(lineage._History._is_redone, "return past.forked and node == past.only", "return False")
    ),
}
