"""pipelines/plan: Random pipelines, random failures, random order: the planner ends where the reference interpreter
does.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.pipelines.model.definition import Definition
from penstock.pipelines.model.expressions import Path
from penstock.values.status import JobStatus, Reason, RunStatus
from tests.pure.pipelines.machine import Machine
from tests.pure.pipelines.programs import Program, program
from tests.pure.pipelines.reference import BLOCKED, IGNORED, PRUNED, RAN, Reference

SEEDS = st.integers(0, 2**40)


def run(made: Program, order: int, together: bool = False) -> tuple[Machine, Reference]:
    params: dict[str, object] = {"given": "hello"}
    machine = Machine(made.definition, made.outcome, params, seed=order).run()

    def winner(key: str, path: Path) -> str | None:
        row = machine.joins.get((key, path))
        return row.tally.winner if row else None

    return machine, Reference(made.definition, made.outcome, params, winner, together)


def check_invariants(machine: Machine) -> None:
    assert machine.ended, "all steps have ended, but not the run"
    assert all(count == 1 for count in machine.fired.values())
    assert all(row.open == 0 for row in machine.joins.values()), "a token was lost"
    assert not machine.waiting, "an element waits at a door that has opened"


def expected_status(how: str, failed: bool) -> tuple[JobStatus, Reason | None]:
    if failed:
        return JobStatus.FAILED, Reason.RETRIES_EXHAUSTED
    return {
        RAN: (JobStatus.SUCCEEDED, None),
        BLOCKED: (JobStatus.SKIPPED, Reason.UPSTREAM_FAILED),
        PRUNED: (JobStatus.SKIPPED, Reason.BRANCH_NOT_TAKEN),
        IGNORED: (JobStatus.FAILED, Reason.RETRIES_EXHAUSTED),
    }[how]


@settings(max_examples=1500, deadline=None)
@given(
    seed=SEEDS,
    order=SEEDS,
    failing=st.sampled_from([0.0, 0.1, 0.3]),
    ignoring=st.booleans(),
    together=st.sampled_from([False, False, False, True]),
)
@example(seed=20275, order=0, failing=0.0, ignoring=False, together=False)
def test_every_step_ends_as_the_reference_says(
    seed: int, order: int, failing: float, ignoring: bool, together: bool
) -> None:
    made = program(seed, failing, "ignore" if ignoring else "continue")
    if together:
        # Stored before steps inside expands waited by themselves.
        made = replace(made, definition=replace(made.definition, doors=False))
    machine, reference = run(made, order, together)
    if machine.status is RunStatus.HALTED:
        # Expanding over a value that is no list halts under every strategy; an ignored failure is no such value.
        assert all("a value of type int" in failed[4] for failed in machine.failures if failed[4])
        return
    check_invariants(machine)
    lost = reference.losers({at: step.reason for at, step in machine.steps.items()})
    found = {at: (step.status, step.reason) for at, step in machine.steps.items() if at not in lost}
    ends = {at: reference.end(*at) for at in reference.steps() if at not in lost}
    assert found == {at: expected_status(end.how, end.failed) for at, end in ends.items()}
    for at, end in ends.items():
        assert machine.steps[at].output == end.value
    failed = [failure for failure in machine.failures if failure[2] != "optional"]
    assert machine.status is (RunStatus.FAILED if failed else RunStatus.SUCCEEDED)
    if not failed:
        assert machine.result == reference.result


@settings(max_examples=700, deadline=None)
@given(seed=SEEDS, order=SEEDS, failing=st.sampled_from([0.05, 0.2]))
def test_a_halted_run_ends_and_what_ran_in_it_is_right(seed: int, order: int, failing: float) -> None:
    machine, reference = run(program(seed, failing, "halt"), order)
    check_invariants(machine)
    for at, step in machine.steps.items():
        if step.status in (JobStatus.SUCCEEDED, JobStatus.FAILED):
            end = reference.end(*at)
            assert (step.status, step.output) == (expected_status(end.how, end.failed)[0], end.value)
    halting = [failure for failure in machine.failures if failure[2] == "halt"]
    assert (machine.status is RunStatus.HALTED) == bool(halting)


@settings(max_examples=400, deadline=None)
@given(seed=SEEDS, order=SEEDS)
def test_a_cancelled_run_ends(seed: int, order: int) -> None:
    made = program(seed, 0.1)
    machine = Machine(made.definition, made.outcome, {"given": 1}, seed=order)
    left = machine.random.randrange(6)

    def outcome(node: str, path: Path, args: list[object], kwargs: dict[str, object]) -> object:
        nonlocal left
        left -= 1
        if left == 0 and not machine.ended:
            machine.cancel()
        return made.outcome(node, path, args, kwargs)

    machine.outcome = outcome
    machine.run()
    check_invariants(machine)
    if left <= 0 and machine.mode == "cancelled":
        assert machine.status is RunStatus.CANCELLED


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS, order=SEEDS, other=SEEDS)
def test_the_order_of_ends_changes_nothing_without_first(seed: int, order: int, other: int) -> None:
    made = program(seed, 0.2)
    if any(node.kind == "first" for node in made.definition.nodes):
        return
    one, two = run(made, order)[0], run(made, other)[0]
    if one.status is not RunStatus.HALTED and two.status is not RunStatus.HALTED:
        assert one.steps == two.steps
        assert one.status is two.status
        if one.status is RunStatus.SUCCEEDED:
            assert one.result == two.result


@settings(max_examples=300, deadline=None)
@given(seed=SEEDS)
def test_a_definition_survives_its_json_and_is_the_same_on_every_boot(seed: int) -> None:
    one, two = program(seed).definition, program(seed).definition
    assert one.hash == two.hash
    assert Definition.from_text(one.text) == one
