"""The state of a run, derived from its steps by one function."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.values.status import RunStatus


@dataclass(frozen=True, slots=True)
class RunState:
    """What is known of a run. `failed` counts failed steps, optional ones not included.

    `ended`: every step has ended. `refused`: it never started, because a run it follows did not succeed.
    """

    started: bool = True
    ended: bool = False
    failed: int = 0
    halted: bool = False
    paused: bool = False
    cancelled: bool = False
    refused: bool = False


def status_of(run: RunState) -> RunStatus:
    """The one place where a run's status comes from."""
    if run.refused:
        return RunStatus.SKIPPED
    if not run.ended:
        if run.cancelled:
            return RunStatus.CANCELLING
        if not run.started:
            return RunStatus.PENDING
        return RunStatus.PAUSED if run.paused else RunStatus.RUNNING
    if run.cancelled:
        return RunStatus.CANCELLED
    if run.failed == 0:
        return RunStatus.SUCCEEDED
    return RunStatus.HALTED if run.halted else RunStatus.FAILED


def events_of(status: RunStatus) -> tuple[str, ...]:
    """The callbacks that a terminal status calls. Skipped and cancelled runs only complete."""
    match status:
        case RunStatus.SUCCEEDED:
            return "on_complete", "on_success"
        case RunStatus.FAILED:
            return "on_complete", "on_failure"
        case RunStatus.HALTED:
            return "on_complete", "on_failure", "on_halt"
        case RunStatus.CANCELLED | RunStatus.SKIPPED:
            return ("on_complete",)
    return ()
