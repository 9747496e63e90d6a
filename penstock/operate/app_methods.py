"""The part of an app that its operators use: dead letters, the trail of who did what, the dashboard."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol, cast

from penstock.job import JobServices
from penstock.lazy_import import Lazy
from penstock.operate.audit import Act, Since, acts, since_when
from penstock.operate.dead_letters import DeadLetters, dead_ids
from penstock.task import Task
from penstock.values import parse
from penstock.values.actor import Acting
from penstock.values.ids import checked_id
from penstock.values.parse import checked

if TYPE_CHECKING:
    from penstock.async_bridge import AsyncBridge
    from penstock.database.database import Database

web = Lazy("penstock.dashboard.dashboard")

TaskName = str | Task[Any, Any] | None


class MountedDashboard(Protocol):
    """A dashboard for a framework to mount: an ASGI application, with its WSGI twin as `wsgi`."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    def wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """The WSGI application."""


class Operating(ABC):
    """An app's operators."""

    database: Database
    bridge: AsyncBridge

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
        """List acts, the latest first: on a run and its steps, or on a job; by one actor; since a time."""
        checked("limit", limit, lambda given: parse.whole(given, 1))
        parse.words(by=by)
        id = None if subject is None else checked_id(getattr(subject, "id", subject))
        when = since_when(since)
        self.prepare()
        return self.database.read(acts, id, by, when, limit)

    async def audit_async(
        self, subject: Any = None, by: str | None = None, since: Since = None, limit: int = 100
    ) -> list[Act]:
        return await self.bridge.run(self.audit, subject, by, since, limit)

    def dead_letters(
        self,
        task: TaskName = None,
        queue: str | None = None,
        reason: str | None = None,
        limit: int | None = 100,
    ) -> DeadLetters:
        """Jobs whose budget is spent, the latest first; `.retry()` or `.discard()` all of them. No limit: None."""
        name = task.name if isinstance(task, Task) else task
        parse.words(task=name, queue=queue)
        checked("limit", limit, lambda given: None if given is None else parse.whole(given, 0))
        self.prepare()
        return DeadLetters(cast(JobServices, self), self.database.read(dead_ids, name, queue, reason, limit))

    async def dead_letters_async(
        self,
        task: TaskName = None,
        queue: str | None = None,
        reason: str | None = None,
        limit: int | None = 100,
    ) -> DeadLetters:
        return await self.bridge.run(self.dead_letters, task, queue, reason, limit)

    def dashboard(
        self,
        guard: Callable[[Any], Any] | None = None,
        *,
        read_only: bool = False,
        redact: Callable[[str, str, object], object] | None = None,
        title: str | None = None,
        prefix: str | None = None,
    ) -> MountedDashboard:
        """Make the pages to mount in an application: ASGI as it is, WSGI by `.wsgi`. Needs `penstock[dashboard]`.

        `guard` gets each request and returns a `penstock.dashboard.Viewer`, or None; it may be async. Without one the
        dashboard is closed, unless `dashboard_password` is set. `redact` is called with a task's name, the kind
        ("arguments", "result", "error", ...) and the value, and returns what is shown. `prefix`: the path at which a
        proxy shows it, if the application does not know.
        """
        return cast(
            MountedDashboard,
            web.Dashboard(self, guard, read_only=read_only, redact=redact, title=title, prefix=prefix),
        )
