"""A job as its producer sees it: its status, its result, its attempts, and methods to cancel, retry and change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from penstock.app_services import AppServices
from penstock.errors import ConfigurationError, JobFailed, PenstockError, ResultTimeout
from penstock.middleware import Publication, publishing
from penstock.queue import control, job_records
from penstock.queue.job_records import JobDetails, JobState
from penstock.queue.jobs import NewJob, with_headers
from penstock.queue.rules import followers
from penstock.queue.wakeups import READY
from penstock.result_wait import ResultWaiter
from penstock.updates import JobUpdate, UpdateStream
from penstock.values import parse
from penstock.values.ids import new_id
from penstock.values.parse import QueueLimit, checked
from penstock.values.status import JobStatus, OutcomeKind, Reason
from penstock.values.typed_json import tags
from penstock.values.typed_json.json_text import loads
from penstock.values.typed_json.parameters import KEYWORDS, REST

if TYPE_CHECKING:
    from penstock.database.database import Database

R = TypeVar("R", covariant=True)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One finished attempt of a job."""

    number: int
    process: str | None
    started_at: datetime
    finished_at: datetime
    outcome: OutcomeKind
    error: str | None
    traceback: str | None


class JobAttributes:
    """The attributes of a job handle, read by one statement when the first of them is asked for.

    They are as they were then; `refresh()` reads them again. `status` always asks the database.
    """

    id: str
    _host: AppServices
    _task: Any = None
    _read: JobDetails | None = None

    def refresh(self) -> Self:
        """Read the attributes again; the handle itself."""
        self._host.prepare()
        found = self._host.database.read(job_records.details, self.id)
        if found is None:
            raise missing(self.id)
        self._read = found
        return self

    async def refresh_async(self) -> Self:
        return await self._host.bridge.run(self.refresh)

    @property
    def _details(self) -> JobDetails:
        if self._read is None:
            self.refresh()
        assert self._read is not None
        return self._read

    @property
    def task(self) -> str:
        """The name of its task."""
        return self._details.task

    @property
    def queue(self) -> str:
        return self._details.queue

    @property
    def priority(self) -> int:
        return self._details.priority

    @property
    def key(self) -> str | None:
        return self._details.key

    @property
    def labels(self) -> list[str]:
        """The labels it was enqueued with, in the order of the alphabet."""
        return list(self._details.labels)

    @property
    def args(self) -> list[Any]:
        """The arguments in the order of their parameters, as far as they can be given by position.

        Where this app lacks the task, the order is not known: then only what went into `*args`.
        """
        given, named = self._arguments()
        task = self._known_task
        return list(given) if given or task is None else task.codec.by_position(named)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by the names of their parameters, as the task's annotations say where this app has the task."""
        return dict(self._arguments()[1])

    @property
    def run_id(self) -> str | None:
        """The run of which it is a step."""
        return self._details.run_id

    @property
    def created_at(self) -> datetime:
        return instant(self._details.created_at)

    @property
    def due_at(self) -> datetime | None:
        """When it becomes available, if that is still to come."""
        return _instant(self._details.due_at)

    @property
    def started_at(self) -> datetime | None:
        """When its latest attempt began."""
        return _instant(self._details.started_at)

    @property
    def finished_at(self) -> datetime | None:
        return _instant(self._details.finished_at)

    @property
    def _known_task(self) -> Any:
        """The task, if this app has it."""
        return self._host.find_task(self._details.task) if self._task is None else self._task

    def _arguments(self) -> tuple[Sequence[Any], dict[str, Any]]:
        details, task = self._details, self._known_task
        if task is not None and details.run_id is None:
            decoded: tuple[Sequence[Any], dict[str, Any]] = task.codec.decode_arguments(details.payload)
            return decoded
        natural = tags.read(loads(details.payload))
        named = dict(natural) if isinstance(natural, dict) else {}
        rest, more = named.pop(REST, []), named.pop(KEYWORDS, {})
        return rest, {**named, **more}


class Job(JobAttributes, Generic[R]):
    """A handle: it holds an id and asks the database."""

    def __init__(self, host: AppServices, id: str, task: Any = None) -> None:
        self._host = host
        self._task = task
        self.id = id

    @property
    def status(self) -> JobStatus:
        return self._state().status

    async def status_async(self) -> JobStatus:
        return await self._host.bridge.run(lambda: self.status)

    def result(self, timeout: float | None = None) -> R:
        """Wait for the job's value. Raises `JobFailed` if there is none to come, `ResultTimeout` if it takes longer.

        An outage of the database is waited out; `DatabaseUnavailable` if it is still away when the time is over.
        """
        patience = ResultWaiter(self._host, timeout)
        with patience:
            while (ended := patience.look(self._look)) is None:
                if not patience.wait():
                    raise ResultTimeout(f"job {self.id}", patience.seconds, patience.status)
        return self._value(ended)

    async def result_async(self, timeout: float | None = None) -> R:
        """`result` for async callers; no thread is held while waiting."""
        patience = ResultWaiter(self._host, timeout)
        async with patience:
            while (ended := await patience.look_async(self._look)) is None:
                if not await patience.wait_async():
                    raise ResultTimeout(f"job {self.id}", patience.seconds, patience.status)
        return self._value(ended)

    def attempts(self) -> list[AttemptRecord]:
        """Every finished attempt, in order."""
        rows = self._database.read(lambda tx: tx.rows(job_records.ATTEMPTS, id=self.id))
        return [attempt_of(row) for row in rows]

    async def attempts_async(self) -> list[AttemptRecord]:
        return await self._host.bridge.run(self.attempts)

    def cancel(self) -> bool:
        """Cancel the job: at once if it waits; if it runs, its handler is told to stop.

        False: the job had ended already.
        """
        self._read = None
        action = control.cancelling(self._host.follow, self._host.events)
        return bool(self._database.in_transaction(action, [self.id]))

    async def cancel_async(self) -> bool:
        return await self._host.bridge.run(self.cancel)

    def retry(self) -> bool:
        """Run a failed or cancelled job again, with fresh budgets. False: it is neither."""
        self._read = None
        again = bool(self._database.in_transaction(control.retrying(), [self.id]))
        if again:
            self._host.wakeups.notify(READY)
        return again

    async def retry_async(self) -> bool:
        return await self._host.bridge.run(self.retry)

    def discard(self) -> bool:
        """Take a failed job off the list of dead letters for good. False: it is not on it."""
        return bool(self._database.in_transaction(control.discarding(), [self.id]))

    async def discard_async(self) -> bool:
        return await self._host.bridge.run(self.discard)

    def delete(self) -> bool:
        """Remove a job that is not running, with its history. False: it runs, is a step of a run, or is gone."""
        self._read = None
        return bool(self._database.in_transaction(control.deleting(), [self.id]))

    async def delete_async(self) -> bool:
        return await self._host.bridge.run(self.delete)

    def update(
        self,
        *,
        priority: int | None = None,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
    ) -> bool:
        """Change the priority, queue or time of a job that waits. False: it does not wait any more, or is a step."""
        change = _change(priority, queue, delay, at)
        self._read = None
        return self._database.in_transaction(control.update, self.id, change)

    async def update_async(
        self,
        *,
        priority: int | None = None,
        queue: str | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
    ) -> bool:
        change = {"priority": priority, "queue": queue, "delay": delay, "at": at}
        return await self._host.bridge.run(lambda: self.update(**change))  # type: ignore[arg-type]

    def progress(self) -> tuple[float, str] | None:
        """The progress that the handler reported last; None if it has reported none."""
        row = self._database.read(lambda tx: tx.row(job_records.PROGRESS, id=self.id))
        return None if row is None else (row[0], row[1])

    async def progress_async(self) -> tuple[float, str] | None:
        return await self._host.bridge.run(self.progress)

    def then(self, task: Any, /, *args: Any, **kwargs: Any) -> Job[Any]:
        """Enqueue a task when this job has succeeded, at once if it has; its job, which waits until then.

        If this job ends in another way, that one is `skipped`. Late registration works.
        """
        drafted = task.drafted((args, kwargs)) if hasattr(task, "drafted") else None
        if not isinstance(drafted, NewJob) or task.settings.connection is not None:
            raise ConfigurationError(
                f"job.then({task!r}): give a task, without a connection: job.then(notify, 'done')"
            )
        self._read = None
        publication = Publication("job", drafted.task, 1, queue=drafted.queue)
        with publishing(self._host.enqueue_middlewares, publication):
            (new,) = with_headers([drafted._replace(id=new_id())], publication.headers)
            id = self._database.in_transaction(followers.register, self.id, new)
            publication.ids = [id]
        self._host.wakeups.notify(READY)
        return Job(self._host, id, task)

    async def then_async(self, task: Any, /, *args: Any, **kwargs: Any) -> Job[Any]:
        return await self._host.bridge.run(self.then, task, *args, **kwargs)

    def stream(self, timeout: float | None = None) -> UpdateStream[JobUpdate]:
        """Follow the job until it ends: `async for update in job.stream():`, or `for` in sync code.

        An update has `status`, `attempt`, `progress`, `message`, `reason`. Raises `ResultTimeout` if it takes longer.
        """
        return UpdateStream(self._host, self._movement, f"job {self.id}", timeout)

    def _movement(self) -> JobUpdate:
        row = self._database.read(lambda tx: tx.row(job_records.MOVEMENT, id=self.id))
        if row is None:
            raise missing(self.id)
        status, attempt, progress, message, reason = row
        current = JobStatus.stored(status)
        why = Reason.stored(reason) if reason and current.terminal else None
        return JobUpdate(current, attempt, progress, message, why)

    @property
    def _database(self) -> Database:
        """The database, with the schema in place: a handle made from an id may be the first to use it."""
        self._host.prepare()
        return self._host.database

    def _state(self) -> JobState:
        state = self._database.read(job_records.state_of, self.id)
        if state is None:
            raise missing(self.id)
        return state

    def _look(self) -> JobState:
        """The state of the job; of a success also the task, by which the result is read."""
        state = self._state()
        if self._task is None and state.status is JobStatus.SUCCEEDED:
            row = self._database.read(lambda tx: tx.row(job_records.DESCRIPTION, id=self.id))
            self._task = self._host.find_task(row[0]) if row else None
        return state

    def _value(self, state: JobState) -> R:
        self._read = None
        if state.status is not JobStatus.SUCCEEDED:
            raise JobFailed(self.id, state.reason or state.status, state.error)
        text = state.output or "null"
        if self._task is None:
            return tags.read(loads(text))  # type: ignore[return-value]
        return self._task.codec.decode_result(text)  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<job {self.id}>"


EARLIEST, LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def instant(micros: int) -> datetime:
    """Microseconds of the database's clock as a datetime in UTC; a number out of range gives the nearest possible
    datetime."""
    try:
        return datetime.fromtimestamp(micros / 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return LATEST if micros > 0 else EARLIEST


def _change(
    priority: int | None, queue: str | None, delay: float | timedelta | None, at: datetime | None
) -> control.JobChange:
    if delay is not None and at is not None:
        raise ConfigurationError("job.update(): give delay= or at=, not both")
    change = control.JobChange(
        None
        if queue is None
        else checked("queue", queue, lambda given: QueueLimit(parse.text(given, 200)).name),
        None
        if priority is None
        else checked("priority", priority, lambda given: parse.whole(given, -parse.MOST)),
        None if delay is None else checked("delay", delay, parse.seconds),
        None if at is None else checked("at", at, parse.instant),
    )
    if change == control.JobChange():
        raise ConfigurationError("job.update(): say what to change: priority=, queue=, delay= or at=")
    return change


def _instant(micros: int | None) -> datetime | None:
    return None if micros is None else instant(micros)


def missing(id: str) -> PenstockError:
    """The error about a job that is not there."""
    return PenstockError(f"there is no job {id}; it may have been pruned, or its enqueue never committed")


def attempt_of(row: Sequence[Any]) -> AttemptRecord:
    """An attempt from its row, with the columns of `queue.job_records.ATTEMPTS`."""
    number, process, started, finished, outcome, error_type, error, traceback = row
    text = f"{error_type}: {error}" if error_type and error else error_type or error
    return AttemptRecord(
        number, process, instant(started), instant(finished), OutcomeKind.stored(outcome), text, traceback
    )
