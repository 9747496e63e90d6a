"""A job as its producer sees it: where it stands, its result, its attempts, and the means to steer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from penstock.errors import JobFailed, PenstockError, ResultTimeout
from penstock.queue import control, job_records
from penstock.queue.job_records import JobState
from penstock.queue.wakeups import READY
from penstock.result_wait import ResultWaiter, WaitServices
from penstock.values.status import JobStatus, OutcomeKind
from penstock.values.typed_json import tags
from penstock.values.typed_json.json_text import loads

if TYPE_CHECKING:
    from penstock.database.database import Database
    from penstock.queue.jobs import Follow

R = TypeVar("R", covariant=True)


class JobServices(WaitServices, Protocol):
    """The parts of an app that a job uses."""

    @property
    def follow(self) -> Follow: ...

    def find_task(self, name: str) -> Any: ...

    def prepare(self) -> None: ...


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


class Job(Generic[R]):
    """A handle: it holds an id and asks the database."""

    def __init__(self, host: JobServices, id: str, task: Any = None) -> None:
        self._host = host
        self._task = task
        self.id = id

    @property
    def status(self) -> JobStatus:
        return self._standing().status

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
        """Cancel the job: at once if it waits, by telling its holder if it runs. False: it was over already."""
        return bool(self._database.in_transaction(control.cancelling(self._host.follow), [self.id]))

    async def cancel_async(self) -> bool:
        return await self._host.bridge.run(self.cancel)

    def retry(self) -> bool:
        """Run a failed or cancelled job again, with fresh budgets. False: it is neither."""
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

    def progress(self) -> tuple[float, str] | None:
        """The progress that the handler reported last; None if it has reported none."""
        row = self._database.read(lambda tx: tx.row(job_records.PROGRESS, id=self.id))
        return None if row is None else (row[0], row[1])

    async def progress_async(self) -> tuple[float, str] | None:
        return await self._host.bridge.run(self.progress)

    @property
    def _database(self) -> Database:
        """A handle made from an id may be the first to use the database."""
        self._host.prepare()
        return self._host.database

    def _standing(self) -> JobState:
        standing = self._database.read(job_records.standing, self.id)
        if standing is None:
            raise PenstockError(
                f"there is no job {self.id}; it may have been pruned, or its enqueue never committed"
            )
        return standing

    def _look(self) -> JobState:
        """How it stands; and if that is well, whose result it is."""
        standing = self._standing()
        if self._task is None and standing.status is JobStatus.SUCCEEDED:
            row = self._database.read(lambda tx: tx.row(job_records.DESCRIPTION, id=self.id))
            self._task = self._host.find_task(row[0]) if row else None
        return standing

    def _value(self, standing: JobState) -> R:
        if standing.status is not JobStatus.SUCCEEDED:
            raise JobFailed(self.id, standing.reason or standing.status, standing.error)
        text = standing.output or "null"
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
    """Microseconds of the database's clock as a datetime in UTC; of an instant that there is not, the nearest one."""
    try:
        return datetime.fromtimestamp(micros / 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return LATEST if micros > 0 else EARLIEST


def attempt_of(row: Sequence[Any]) -> AttemptRecord:
    """An attempt from its row, with the columns of `queue.read.ATTEMPTS`."""
    number, process, started, finished, outcome, error_type, error, traceback = row
    text = f"{error_type}: {error}" if error_type and error else error_type or error
    return AttemptRecord(
        number, process, instant(started), instant(finished), OutcomeKind.stored(outcome), text, traceback
    )
