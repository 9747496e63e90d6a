"""values/status: the closed vocabularies are the ones the public contract names."""

from __future__ import annotations

import json

from penstock.values.status import JobStatus, OutcomeKind, Reason, RunStatus


def test_job_statuses_are_those_of_the_contract() -> None:
    assert {*JobStatus} == {
        *("scheduled", "available", "running", "succeeded", "failed", "cancelled", "waiting", "skipped")
    }


def test_outcomes_are_those_of_the_contract() -> None:
    assert {*OutcomeKind} == {
        *("succeeded", "errored", "timed_out", "crashed", "snoozed", "cancelled", "released")
    }


def test_terminal_job_statuses() -> None:
    assert {status for status in JobStatus if status.terminal} == {
        "succeeded",
        "failed",
        "cancelled",
        "skipped",
    }


def test_terminal_run_statuses() -> None:
    assert {status for status in RunStatus if not status.terminal} == {
        *("pending", "running", "paused", "cancelling")
    }


def test_every_reason_has_an_explanation_of_its_own() -> None:
    explanations = [reason.explanation for reason in Reason]
    assert all(explanations)
    assert len(set(explanations)) == len(explanations)


def test_states_are_their_own_text() -> None:
    assert json.dumps([JobStatus.FAILED, Reason.TIMED_OUT]) == '["failed", "timed_out"]'
    assert JobStatus("running") is JobStatus.RUNNING
