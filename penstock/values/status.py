"""The closed vocabularies: where jobs and runs stand, how attempts end, and why things end badly."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class Vocabulary(StrEnum):
    """Words that are stored.

    A row may hold a word that this version does not know: a later version wrote it, or a person did.
    """

    @classmethod
    def stored(cls, text: object) -> Self:
        """The member for a stored word; for an unknown word, a member that shows it unchanged."""
        try:
            return cls(str(text))
        except ValueError:
            strange = str.__new__(cls, text)
            strange._name_ = strange._value_ = str(text)
            return strange


class JobStatus(Vocabulary):
    """Where a job stands. A step of a run is a job too, and only steps are `waiting` or `skipped`."""

    WAITING = "waiting"
    SCHEDULED = "scheduled"
    AVAILABLE = "available"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def terminal(self) -> bool:
        return self in _TERMINAL_JOBS


_TERMINAL_JOBS = frozenset({JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.SKIPPED})


class RunStatus(Vocabulary):
    """Where a run stands. `pending`: not due yet, waiting for the run it follows, or in line (`max_running`)."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    HALTED = "halted"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def terminal(self) -> bool:
        return self in _TERMINAL_RUNS


_TERMINAL_RUNS = frozenset(
    {RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.HALTED, RunStatus.CANCELLED, RunStatus.SKIPPED}
)


class OutcomeKind(Vocabulary):
    """How one attempt ended."""

    SUCCEEDED = "succeeded"
    ERRORED = "errored"
    TIMED_OUT = "timed_out"
    CRASHED = "crashed"
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"
    RELEASED = "released"


class Reason(Vocabulary):
    """Why a job, a step or a run did not end well."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    CRASHES_EXHAUSTED = "crashes_exhausted"
    TIMED_OUT = "timed_out"
    NOT_RETRYABLE = "not_retryable"
    ARGUMENTS_INVALID = "arguments_invalid"
    RESULT_NOT_SERIALIZABLE = "result_not_serializable"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    UNKNOWN_TASK = "unknown_task"
    MAX_FANOUT_EXCEEDED = "max_fanout_exceeded"
    MAX_STEPS_EXCEEDED = "max_steps_exceeded"
    CONDITION_UNMATCHED = "condition_unmatched"
    TRANSITION_INVALID = "transition_invalid"
    ADVANCEMENT_FAILED = "advancement_failed"
    UPSTREAM_FAILED = "upstream_failed"
    BRANCH_NOT_TAKEN = "branch_not_taken"
    RUN_HALTED = "run_halted"
    RUN_STOPPED = "run_stopped"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    WAIT_TIMED_OUT = "wait_timed_out"
    FIRST_DECIDED = "first_decided"
    CANCELLED = "cancelled"
    DISCARDED = "discarded"
    EXPIRED = "expired"
    CHILD_RUN_FAILED = "child_run_failed"
    UPSTREAM_RUN_NOT_SUCCEEDED = "upstream_run_not_succeeded"
    ROW_DAMAGED = "row_damaged"

    @property
    def explanation(self) -> str:
        """One sentence for people: what happened and, where something can be done, what."""
        return _EXPLANATIONS.get(self, "this version of Penstock does not know that reason")


_EXPLANATIONS = {
    Reason.RETRIES_EXHAUSTED: "every attempt raised an error and the retries are spent",
    Reason.CRASHES_EXHAUSTED: "its process died too often while running it (max_crashes)",
    Reason.TIMED_OUT: "the last attempt took longer than its timeout",
    Reason.NOT_RETRYABLE: "it raised an error that its retry policy does not retry",
    Reason.ARGUMENTS_INVALID: "the stored arguments do not fit the task's signature",
    Reason.RESULT_NOT_SERIALIZABLE: "its result cannot be written as JSON",
    Reason.PAYLOAD_TOO_LARGE: "its result is larger than payload_limit",
    Reason.UNKNOWN_TASK: "no process knows a task of that name",
    Reason.MAX_FANOUT_EXCEEDED: "the value to expand over has more elements than max_fanout allows",
    Reason.MAX_STEPS_EXCEEDED: "the run would have more steps than max_steps allows",
    Reason.CONDITION_UNMATCHED: "no arm of the switch matches the value and there is no otherwise",
    Reason.TRANSITION_INVALID: "the value cannot be expanded: it is not a list or a dict",
    Reason.ADVANCEMENT_FAILED: "creating the following steps failed",
    Reason.UPSTREAM_FAILED: "a step or job it depends on did not succeed",
    Reason.BRANCH_NOT_TAKEN: "the switch chose another arm",
    Reason.RUN_HALTED: "the run was halted before it started",
    Reason.RUN_STOPPED: "stop_run() ended the run before it started",
    Reason.DEADLINE_EXCEEDED: "the run took longer than its deadline",
    Reason.WAIT_TIMED_OUT: "the signal it waited for did not come in time",
    Reason.FIRST_DECIDED: "it waited for a signal, and the first() that it was for has its values from others",
    Reason.CANCELLED: "it was cancelled",
    Reason.DISCARDED: "it was discarded from the dead letters",
    Reason.EXPIRED: "no attempt had begun when its time (expires) was over",
    Reason.CHILD_RUN_FAILED: "the child run did not succeed",
    Reason.UPSTREAM_RUN_NOT_SUCCEEDED: "the run it follows did not succeed",
    Reason.ROW_DAMAGED: (
        "its rows were damaged: its outcome had no place, or `penstock doctor --repair` gave it up; retry it if it is "
        "to run"
    ),
}
