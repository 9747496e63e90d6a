"""The part of an app that its operators use: dead letters, and the trail of who did what."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, cast

from penstock.job import JobHost
from penstock.operate.audits import Act, Since, acts, since_when
from penstock.operate.dead_letters import DeadLetters, dead_ids
from penstock.task import Task
from penstock.values import checks
from penstock.values.acting import Acting
from penstock.values.checks import checked
from penstock.values.ids import checked_id

if TYPE_CHECKING:
    from penstock.database.engine import Database
    from penstock.doors import Doors

TaskName = str | Task[Any, Any] | None


class Operating(ABC):
    """An app's operators."""

    database: Database
    doors: Doors

    @abstractmethod
    def prepare(self) -> None:
        """The schema is there, or is made."""

    def acting(self, by: str | None = None, why: str | None = None) -> Acting:
        """Say who acts, and why, for the trail: `with app.acting(by="ann", why="ticket 12"): run.cancel()`.

        Also `async with`. Without it, `by` is the job inside a handler, else the process's user and host.
        """
        return Acting(by, why)

    def audit(
        self, subject: Any = None, by: str | None = None, since: Since = None, limit: int = 100
    ) -> list[Act]:
        """What people did, the latest first: to a run and its steps, or to a job; by somebody; since then."""
        checked("limit", limit, lambda given: checks.whole(given, 1))
        checks.words(by=by)
        id = None if subject is None else checked_id(getattr(subject, "id", subject))
        when = since_when(since)
        self.prepare()
        return self.database.read(acts, id, by, when, limit)

    async def audit_async(
        self, subject: Any = None, by: str | None = None, since: Since = None, limit: int = 100
    ) -> list[Act]:
        return await self.doors.run(self.audit, subject, by, since, limit)

    def dead_letters(
        self,
        task: TaskName = None,
        queue: str | None = None,
        reason: str | None = None,
        limit: int | None = 100,
    ) -> DeadLetters:
        """Jobs whose budget is spent, the latest first; `.retry()` or `.discard()` all of them. No limit: None."""
        name = task.name if isinstance(task, Task) else task
        checks.words(task=name, queue=queue)
        checked("limit", limit, lambda given: None if given is None else checks.whole(given, 0))
        self.prepare()
        return DeadLetters(cast(JobHost, self), self.database.read(dead_ids, name, queue, reason, limit))

    async def dead_letters_async(
        self,
        task: TaskName = None,
        queue: str | None = None,
        reason: str | None = None,
        limit: int | None = 100,
    ) -> DeadLetters:
        return await self.doors.run(self.dead_letters, task, queue, reason, limit)
