"""The part of an app that its operators use: jobs, queues, dead letters, the audit trail, the dashboard."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, cast

from penstock.app_services import AppServices
from penstock.errors import ConfigurationError
from penstock.job import Job
from penstock.operate import overview
from penstock.operate.audit import Act, Since, acts, since_when
from penstock.operate.dead_letters import DeadLetters, dead_ids
from penstock.operate.jobs import JobFilter, list_jobs
from penstock.queue.rules import queue_controls
from penstock.queue.rules.queue_controls import ALL_QUEUES
from penstock.queue.wakeups import CONTROLS, Wakeups
from penstock.task import Task
from penstock.values import parse
from penstock.values.actor import Acting
from penstock.values.ids import checked_id
from penstock.values.lazy_import import Lazy
from penstock.values.parse import QueueLimit, checked, nearest, read_queues
from penstock.values.status import JobStatus

if TYPE_CHECKING:
    from penstock.async_bridge import AsyncBridge
    from penstock.database.database import Database
    from penstock.operate import actions, processes
    from penstock.operate import doctor as examining
    from penstock.operate import reconcilers as progress
    from penstock.operate.diagnosis import explain as explaining
    from penstock.operate.diagnosis.explain import Explanation
    from penstock.operate.doctor import Finding
    from penstock.operate.overview import Overview, QueueCounts
    from penstock.operate.processes import ProcessRow
    from penstock.operate.reconcilers import FailingRow, ReconcilerRow
    from penstock.reconcile.reconciler import Reconciler
    from penstock.settings import Settings
else:
    explaining = Lazy("penstock.operate.diagnosis.explain")
    actions, processes = Lazy("penstock.operate.actions"), Lazy("penstock.operate.processes")
    examining, progress = Lazy("penstock.operate.doctor"), Lazy("penstock.operate.reconcilers")

web = Lazy("penstock.dashboard.dashboard")

TaskName = str | Task[Any, Any] | None
Queues = str | Iterable[str | QueueLimit] | None


class MountedDashboard(Protocol):
    """A dashboard for a framework to mount: an ASGI application, with its WSGI twin as `wsgi`."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None: ...

    def wsgi(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """The WSGI application."""


class Operating(ABC):
    """The methods of an app for its operators."""

    database: Database
    bridge: AsyncBridge
    settings: Settings
    wakeups: Wakeups
    reconcilers: dict[str, Reconciler]

    @property
    @abstractmethod
    def task_names(self) -> list[str]:
        """The names of all tasks that this process can run."""

    @abstractmethod
    def prepare(self) -> None:
        """Make sure that the schema is there."""

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

    def jobs(
        self,
        status: str | None = None,
        queue: str | None = None,
        task: TaskName = None,
        label: str | None = None,
        key: str | None = None,
        limit: int = 100,
        before: Job[Any] | str | None = None,
    ) -> list[Job[Any]]:
        """List jobs, the newest first: those that fit all that is given; `before`: go on below this job.

        Failed and running jobs, and those of a label or a key, are found directly, any others by walking back.
        """
        name = task.name if isinstance(task, Task) else task
        parse.words(queue=queue, task=name, label=label, key=key)
        checked("limit", limit, lambda given: parse.whole(given, 0))
        wanted = JobFilter(_status(status), queue, name, label, key, tuple(self.task_names))
        start = None if before is None else checked_id(getattr(before, "id", before))
        self.prepare()
        found: list[str] = []
        while len(found) < limit:
            page = self.database.read(list_jobs, wanted, limit - len(found), start)
            found += [job.id for job in page.jobs]
            start = page.before
            if start is None:
                break
        return [Job(cast(AppServices, self), id) for id in found]

    async def jobs_async(
        self,
        status: str | None = None,
        queue: str | None = None,
        task: TaskName = None,
        label: str | None = None,
        key: str | None = None,
        limit: int = 100,
        before: Job[Any] | str | None = None,
    ) -> list[Job[Any]]:
        return await self.bridge.run(self.jobs, status, queue, task, label, key, limit, before)

    def pause_queue(self, queue: str, why: str | None = None) -> bool:
        """Have no worker claim from this queue, until it is resumed. False: it is paused already.

        Jobs that a worker has claimed already run to their end; new ones can be enqueued, and wait.
        """
        return self._control(queue_controls.pause, _queue(queue), why)

    async def pause_queue_async(self, queue: str, why: str | None = None) -> bool:
        return await self.bridge.run(self.pause_queue, queue, why)

    def resume_queue(self, queue: str, why: str | None = None) -> bool:
        """Have workers claim from this queue again. False: it was not paused."""
        return self._control(queue_controls.resume, _queue(queue), why)

    async def resume_queue_async(self, queue: str, why: str | None = None) -> bool:
        return await self.bridge.run(self.resume_queue, queue, why)

    def set_queues(self, queues: Queues, host: str | None = None, why: str | None = None) -> bool:
        """Have running workers take from other queues: `app.set_queues("mail:10,default", host="web-1")`.

        It holds for all workers, or for those of one host, also when they start again. `"all"`: from all queues;
        None: from those that they were started with. False: it is so already.
        """
        text = checked("queues", queues, _queues_text)
        parse.words(host=host)
        return self._control(queue_controls.assign, host, text, why)

    async def set_queues_async(self, queues: Queues, host: str | None = None, why: str | None = None) -> bool:
        return await self.bridge.run(self.set_queues, queues, host, why)

    def _control(self, change: Callable[..., bool], *given: str | None) -> bool:
        self.prepare()
        changed = self.database.in_transaction(change, *given)
        if changed:
            self.wakeups.notify(CONTROLS)
        return changed

    def queues(self) -> list[QueueCounts]:
        """Every queue in which something waits, runs or has failed, or that is paused."""
        self.prepare()
        return self.database.read(overview.queue_counts)

    async def queues_async(self) -> list[QueueCounts]:
        return await self.bridge.run(self.queues)

    def status(self) -> Overview:
        """Count what waits, runs and has failed in each queue, the live processes by role, and the newest jobs."""
        self.prepare()
        return self.database.read(overview.overview, self.settings.reap_after)

    async def status_async(self) -> Overview:
        return await self.bridge.run(self.status)

    def processes(self) -> list[ProcessRow]:
        """Every process that is known, oldest first: when it was last heard of, and how many jobs it holds."""
        self.prepare()
        return self.database.read(processes.list_processes)

    async def processes_async(self) -> list[ProcessRow]:
        return await self.bridge.run(self.processes)

    def reconciler_status(self) -> list[ReconcilerRow]:
        """Every reconciler of this app, by name: how many rows are due, held and failing, and how long they wait."""
        self.prepare()
        return progress.look(self.database, self.reconcilers.values())

    async def reconciler_status_async(self) -> list[ReconcilerRow]:
        return await self.bridge.run(self.reconciler_status)

    def failing_rows(self, limit: int = 100) -> list[FailingRow]:
        """Rows whose last visit by a reconciler ended with an error, the latest first."""
        checked("limit", limit, lambda given: parse.whole(given, 0))
        self.prepare()
        return self.database.read(progress.failing, limit)

    async def failing_rows_async(self, limit: int = 100) -> list[FailingRow]:
        return await self.bridge.run(self.failing_rows, limit)

    def doctor(self) -> list[Finding]:
        """Look for everything that can be wrong with the installation. A finding that is not `ok` says what to do.

        Nothing is changed; a database that is away, or has no schema, is a finding.
        """
        return examining.examine(examining.CheckContext.of(self))

    async def doctor_async(self) -> list[Finding]:
        return await self.bridge.run(self.doctor)

    def prune(self, older_than: float | str | timedelta, *, told: Callable[[int], None] | None = None) -> int:
        """Remove finished jobs and runs that ended longer ago than this (seconds, or text such as "14d"); how many.

        It goes in batches, each a transaction of its own; `told` is called with the size of each.
        """
        age = checked("older_than", older_than, parse.duration)
        self.prepare()
        return actions.prune(self.database, age, told or actions.ignore_progress)

    async def prune_async(
        self, older_than: float | str | timedelta, *, told: Callable[[int], None] | None = None
    ) -> int:
        return await self.bridge.run(lambda: self.prune(older_than, told=told))

    def explain(self, subject: Any) -> Explanation:
        """Say why a job or a run waits, or what its state is: `print(app.explain(job))`. Also by its id."""
        self.prepare()
        id = checked_id(getattr(subject, "id", subject))
        return self.database.read(explaining.explain, id, self.settings.reap_after)

    async def explain_async(self, subject: Any) -> Explanation:
        return await self.bridge.run(self.explain, subject)

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
        return DeadLetters(cast(AppServices, self), self.database.read(dead_ids, name, queue, reason, limit))

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


def _status(given: str | None) -> JobStatus | None:
    if given is not None and given not in list(JobStatus):
        raise ConfigurationError(
            f"status={given!r}: a job is {', '.join(JobStatus)}{nearest(str(given), list(JobStatus))}"
        )
    return None if given is None else JobStatus(given)


def _queue(name: str) -> str:
    return checked("queue", name, lambda given: QueueLimit(parse.text(given, parse.NAME_LENGTH)).name)


def _queues_text(given: Queues) -> str | None:
    """Write queues as they are stored: text such as "mail:10,default", or "all"."""
    if given is None or given == ALL_QUEUES:
        return given
    found = read_queues(given)
    if not found:
        raise ValueError("name a queue, or say 'all'")
    return ",".join(map(str, found))
