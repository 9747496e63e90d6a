"""pipelines/engine, pipelines/advance: Random pipelines, random failures, random order and batches: the engine ends
where the reference interpreter does.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random, SystemRandom
from typing import Any

import pytest

from penstock import Penstock, current
from penstock.pipelines.advance.finish import follow
from penstock.pipelines.advance.waits import WaitResult, finish_waiting
from penstock.pipelines.lifecycle.start import NewRun
from penstock.pipelines.model.expressions import Path, path_of
from penstock.values.ids import new_id
from penstock.values.status import JobStatus, Reason, RunStatus
from penstock.values.typed_json.json_text import dumps
from tests.conformance.pipelines.random_worker import RandomWorker
from tests.conformance.rows import rows
from tests.pure.pipelines.machine import Boom
from tests.pure.pipelines.programs import Program, program
from tests.pure.pipelines.reference import BLOCKED, IGNORED, PRUNED, RAN, Reference

PROGRAMS = {"sqlite": 150, "postgres": 45, "mariadb": 30}
FRESH = {"sqlite": 60, "postgres": 20, "mariadb": 15}
"""So many graphs that no run of the suite has seen before, each with several workers."""


class Bench:
    """An app whose tasks do what the program of the run says."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.made: Program | None = None

        def body(*values: Any) -> Any:
            claim = current()._claim
            assert self.made is not None
            return self.made.outcome(str(claim.node), path_of(claim.path or ""), list(values), {})

        for name in ("value", "list", "label"):
            app.task(name=f"tests.{name}", retries=0)(body)

    def run(self, made: Program, order: int, workers: int = 1) -> str:
        self.made = made
        new = NewRun(new_id(), made.definition, '{"given":"hello"}')
        self.app.engine.trigger(new, None)
        crew = [RandomWorker(self.app, order + number) for number in range(workers)]
        while True:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(RandomWorker.run, crew))
            if not self.end_a_wait(new.id, crew[0].random):
                return new.id

    def end_a_wait(self, run: str, random: Random) -> bool:
        """A signal for each waiting step of its own: the reference has one value per step."""
        waiting = [step for step in self.app.run(run).steps() if step.status is JobStatus.WAITING]
        if not waiting:
            return False
        step = random.choice(waiting)
        assert self.made is not None
        try:
            how = WaitResult(JobStatus.SUCCEEDED, dumps(self.made.outcome(step.key, step.path, [], {})))
        except Boom:
            how = WaitResult(JobStatus.FAILED, reason=Reason.RETRIES_EXHAUSTED, error="boom")
        with self.app.database.transaction() as tx:
            follow(self.app.engine.engine_state, tx, finish_waiting(tx, {step.id: how}))
        return True

    def reference(self, made: Program, run: str) -> Reference:
        stored = rows(self.app, "SELECT node, path, winner FROM {joins} WHERE run_id = :run", run=run)
        winners = {(node, path_of(path)): winner for node, path, winner in stored}

        def winner(key: str, path: Path) -> str | None:
            return winners.get((key, path))

        return Reference(made.definition, made.outcome, {"given": "hello"}, winner)


@pytest.fixture
def bench(app: Penstock) -> Bench:
    return Bench(app)


def expected(how: str, failed: bool) -> tuple[JobStatus, Reason | None]:
    if failed:
        return JobStatus.FAILED, Reason.RETRIES_EXHAUSTED
    return {
        RAN: (JobStatus.SUCCEEDED, None),
        BLOCKED: (JobStatus.SKIPPED, Reason.UPSTREAM_FAILED),
        PRUNED: (JobStatus.SKIPPED, Reason.BRANCH_NOT_TAKEN),
        IGNORED: (JobStatus.FAILED, Reason.RETRIES_EXHAUSTED),
    }[how]


def check_ended(app: Penstock, run: str) -> None:
    """Invariants 6 and 7: all joins have fired, nothing is left, and the run is terminal like all its steps."""
    assert app.run(run).status.terminal
    left = rows(
        app, "SELECT node, path, still_open FROM {joins} WHERE run_id = :run AND still_open <> 0", run=run
    )
    assert left == []
    assert all(step.status.terminal for step in app.run(run).steps())


@pytest.mark.parametrize("workers", [1, 3])
def test_every_step_ends_as_the_reference_says(bench: Bench, database_kind: str, workers: int) -> None:
    """Where the first run of a definition teaches the next a shorter way (see `fast_path`), a second one takes it."""
    learns = bench.app.database.dialect.fast_path.plan
    for seed in range(workers * 10_000, workers * 10_000 + PROGRAMS[database_kind] // workers):
        failing = (0.0, 0.1, 0.3)[seed % 3]
        made = program(seed, failing, "ignore" if seed % 2 else "continue")
        for again in range(2 if learns else 1):
            check_run(bench, made, bench.run(made, seed + again, workers), seed)
    assert bool(bench.app.engine.engine_state.cached_steps) == learns


def test_graphs_never_seen_before_end_as_the_reference_says(
    make_app: Callable[..., Penstock], database_kind: str
) -> None:
    """Expands are large from two elements on, and go on chunk by chunk. A failure names its seed."""
    app = make_app(inline_fanout=1)
    app.engine.chores.advancer.chunk = 2
    bench = Bench(app)
    for seed in [SystemRandom().randrange(2**40) for _ in range(FRESH[database_kind])]:
        made = program(seed, (0.0, 0.1, 0.3)[seed % 3], "ignore" if seed % 2 else "continue")
        try:
            check_run(bench, made, bench.run(made, seed, 2), seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


def check_run(bench: Bench, made: Program, run: str, seed: int) -> None:
    check_ended(bench.app, run)
    handle = bench.app.run(run)
    if handle.status is RunStatus.HALTED:
        return
    reference = bench.reference(made, run)
    steps = {(s.key, s.path): s for s in handle.steps() if not s.key.startswith("@")}
    lost = reference.losers({at: step.reason for at, step in steps.items()})
    ends = {at: reference.end(*at) for at in reference.steps() if at not in lost}
    assert {at: (s.status, s.reason) for at, s in steps.items() if at not in lost} == {
        at: expected(end.how, end.failed) for at, end in ends.items()
    }, seed
    for at, end in ends.items():
        assert steps[at].output == end.value, (seed, at)
    if handle.status is RunStatus.SUCCEEDED:
        assert handle.result(0) == reference.result, seed
    else:
        assert handle.status is RunStatus.FAILED


def test_a_halted_run_ends_and_what_ran_in_it_is_right(bench: Bench, database_kind: str) -> None:
    for seed in range(1000, 1000 + PROGRAMS[database_kind] // 2):
        made = program(seed, 0.1, "halt")
        run = bench.run(made, seed)
        check_ended(bench.app, run)
        reference = bench.reference(made, run)
        for step in bench.app.run(run).steps():
            if step.status in (JobStatus.SUCCEEDED, JobStatus.FAILED) and not step.key.startswith("@"):
                end = reference.end(step.key, step.path)
                assert (step.status, step.output) == (expected(end.how, end.failed)[0], end.value)
