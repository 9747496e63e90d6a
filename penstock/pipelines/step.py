"""A step of a run, as users see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from penstock.job import AttemptRecord, attempt_of, instant
from penstock.pipelines.paths import path_of
from penstock.values.status import JobStatus, OutcomeKind, Reason


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run. `path` has the element's index in each enclosing expand."""

    id: str
    key: str
    path: tuple[int, ...]
    task: str
    status: JobStatus
    reason: Reason | None
    error: str | None
    output: Any
    started_at: datetime | None
    finished_at: datetime | None
    _attempts: tuple[AttemptRecord, ...] = ()

    def attempts(self) -> list[AttemptRecord]:
        """Every finished attempt, in order."""
        return list(self._attempts)


def step_of(row: Sequence[Any], attempts: list[Sequence[Any]], read: Callable[[str, str], Any]) -> Step:
    """A step from its row and those of its attempts, each of which ends in its output.

    `read` gives the value behind a stored output of a node.
    """
    id, node, path, task, status, reason, claimed, finished, _created = row
    records = tuple([attempt_of(attempt[:-1]) for attempt in attempts])
    succeeded = [attempt[-1] for attempt in attempts if attempt[4] == OutcomeKind.SUCCEEDED]
    errors = [record.error for record in records if record.error]
    done = JobStatus(status) is JobStatus.SUCCEEDED
    return Step(
        id=str(id),
        key=node,
        path=path_of(path or ""),
        task=task,
        status=JobStatus(status),
        reason=Reason(reason) if reason else None,
        error=errors[-1] if errors and not done else None,
        output=read(node, succeeded[-1] or "null") if succeeded and done else None,
        started_at=instant(claimed) if claimed else None,
        finished_at=instant(finished) if finished else None,
        _attempts=records,
    )
