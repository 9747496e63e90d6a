"""pipelines/plan/plan: the status of a run: the whole table."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from penstock.pipelines.plan.plan import RunState, begin, events_of, status_of
from penstock.values.status import Reason, RunStatus
from tests.pure.pipelines.fakes import graph, task
from tests.pure.pipelines.machine import Boom, Machine, Stop

TABLE = [
    (RunState(), RunStatus.RUNNING),
    (RunState(started=False), RunStatus.PENDING),
    (RunState(paused=True), RunStatus.PAUSED),
    (RunState(cancelled=True), RunStatus.CANCELLING),
    (RunState(cancelled=True, paused=True), RunStatus.CANCELLING),
    (RunState(failed=1, halted=True), RunStatus.RUNNING),
    (RunState(ended=True), RunStatus.SUCCEEDED),
    (RunState(ended=True, failed=2), RunStatus.FAILED),
    (RunState(ended=True, failed=2, halted=True), RunStatus.HALTED),
    (RunState(ended=True, cancelled=True, failed=1, halted=True), RunStatus.CANCELLED),
    (RunState(started=False, refused=True), RunStatus.SKIPPED),
]


@pytest.mark.parametrize(("state", "status"), TABLE)
def test_the_table(state: RunState, status: RunStatus) -> None:
    assert status_of(state) is status


def test_a_run_is_terminal_if_and_only_if_all_its_steps_are() -> None:
    for started, ended, halted, paused, cancelled in product([True, False], repeat=5):
        status = status_of(RunState(started, ended, int(halted), halted, paused, cancelled))
        assert status.terminal == ended


def test_the_callbacks_of_each_end() -> None:
    assert events_of(RunStatus.SUCCEEDED) == ("on_complete", "on_success")
    assert events_of(RunStatus.FAILED) == ("on_complete", "on_failure")
    assert events_of(RunStatus.HALTED) == ("on_complete", "on_failure", "on_halt")
    assert events_of(RunStatus.CANCELLED) == events_of(RunStatus.SKIPPED) == ("on_complete",)
    assert events_of(RunStatus.CANCELLING) == ()


A, B, C, D = (task(name, "*x") for name in "abcd")


def machine_of(function: Any, **raising: Exception) -> Machine:
    def outcome(node: str, *_: object) -> object:
        if node in raising:
            raise raising[node]
        return node

    machine = Machine(graph(function), outcome)
    machine.apply(begin(machine.wiring))
    return machine


def test_a_halt_lets_running_steps_finish_and_starts_nothing_new() -> None:
    machine = machine_of(lambda: [B(A()), D(C())], a=Boom())
    machine.random.random = lambda: 0.0  # type: ignore[method-assign]  # c is running
    machine.finish("a")
    assert machine.statuses("c") == ["running"]
    machine.finish("c")
    assert machine.statuses("d") == ["skipped"]
    assert machine.steps["d", ()].reason is Reason.RUN_HALTED
    assert machine.status is RunStatus.HALTED


def test_stop_run_ends_the_run_with_the_value_and_skips_the_rest() -> None:
    machine = machine_of(lambda: [B(A()), D(C())], a=Stop("enough"))
    machine.random.random = lambda: 0.0  # type: ignore[method-assign]  # c is running
    machine.finish("a")
    assert machine.steps["b", ()].reason is Reason.RUN_STOPPED
    machine.finish("c")
    assert machine.status is RunStatus.SUCCEEDED
    assert machine.result == "enough"


def test_cancelling_ends_what_has_not_started_as_cancelled() -> None:
    machine = machine_of(lambda: [B(A()), D(C())])
    machine.random.random = lambda: 1.0  # type: ignore[method-assign]  # nothing is running
    machine.cancel()
    assert machine.status is RunStatus.CANCELLED
    assert {step.status.value for step in machine.steps.values()} == {"cancelled"}
    assert set(machine.steps) == {(key, ()) for key in "abcd"}
