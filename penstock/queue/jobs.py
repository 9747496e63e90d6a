"""The records that the queue exchanges with its callers: a new job, a claim, a finished attempt, an ended step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Protocol, overload
from uuid import UUID

from pydantic_core import from_json, to_json

from penstock.database.transaction import Transaction
from penstock.values.outcome import Outcome
from penstock.values.status import JobStatus, Reason

MOST_COUNTED = 2_000_000_000
"""Retries and crashes are counted up to this number: a larger one would not fit the column."""


class Uniqueness(StrEnum):
    """For how long no other job can take the key of a job."""

    FOREVER = "forever"
    """As long as the job is remembered."""
    WHILE_PENDING = "while_pending"
    """Until it is over."""
    WHILE_WAITING = "while_waiting"
    """While no worker has it: until it starts, and again while it waits for a retry."""


class UniqueRule(NamedTuple):
    """When another job may take the key. Without a rule, never."""

    lasts: Uniqueness | None = None
    window: int | None = None
    """Microseconds after the enqueue for which the key is taken, whatever has become of the job."""
    replaces: bool = False
    """True if a job that has not started gets the arguments and the time of the next enqueue."""


class NewJob(NamedTuple):
    """A job to be written. `delay` in seconds, or `due_at` in microseconds by the database's clock."""

    id: str
    task: str
    queue: str
    priority: int
    payload: str
    options: str | None = None
    max_crashes: int | None = None
    delay: float = 0.0
    due_at: int | None = None
    key: str | None = None
    origin_id: str | None = None
    run_id: str | None = None
    node: str | None = None
    path: str | None = None
    status: JobStatus | None = None
    """Steps that are not to run yet are written with a status of their own and no place in the queue."""
    labels: tuple[str, ...] = ()
    unique: UniqueRule | None = None
    """For how long the key is unique; None: for ever."""
    aliases: tuple[str, ...] = ()
    """Names that the task had before: a key of theirs is a key of this one."""

    @property
    def is_plain(self) -> bool:
        """True if the job is all that is written: no key to take, and no rows beside it."""
        return self.key is None and not self.labels


class LazyPayloads(Sequence[str]):
    """Texts that are made when they are first used, in order, and then kept."""

    def __init__(self, makers: Iterator[str], count: int) -> None:
        self._makers = makers
        self._count = count
        self._made: list[str] = []

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> str: ...

    @overload
    def __getitem__(self, place: slice) -> list[str]: ...

    def __getitem__(self, place: int | slice) -> str | list[str]:
        end = place.indices(self._count)[1] if isinstance(place, slice) else self._count
        self._made.extend(islice(self._makers, max(0, end - len(self._made))))
        return self._made[place]


class JobBatch(Sequence[NewJob]):
    """Many jobs that differ only in their ids and payloads, without an object for each."""

    def __init__(self, template: NewJob, ids: list[str], payloads: Sequence[str]) -> None:
        self.template = template
        self.ids = ids
        self.payloads = payloads

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[NewJob]:
        for id, payload in zip(self.ids, self.payloads, strict=True):
            yield self.template._replace(id=id, payload=payload)

    @overload
    def __getitem__(self, place: int) -> NewJob: ...

    @overload
    def __getitem__(self, place: slice) -> JobBatch: ...

    def __getitem__(self, place: int | slice) -> NewJob | JobBatch:
        if isinstance(place, slice):
            return JobBatch(self.template, self.ids[place], self.payloads[place])
        return self.template._replace(id=self.ids[place], payload=self.payloads[place])


HEADERS = "h"
"""The key of the headers among the stored options of a job."""


SCHEDULE_HEADER = "schedule"
"""The header of a job or run that a schedule has made: the schedule's name."""


def with_headers(jobs: Sequence[NewJob], headers: Mapping[str, str]) -> Sequence[NewJob]:
    """The same jobs with these headers, the same for all of them."""
    if not headers:
        return jobs
    if isinstance(jobs, JobBatch):
        return JobBatch(_with_headers(jobs.template, headers), jobs.ids, jobs.payloads)
    return [_with_headers(job, headers) for job in jobs]


def _with_headers(job: NewJob, headers: Mapping[str, str]) -> NewJob:
    options = {} if job.options is None else from_json(job.options)
    merged = {**headers, **options.get(HEADERS, {})}
    return job._replace(options=to_json({**options, HEADERS: merged}).decode())


def headers_of(options: str | None) -> Mapping[str, str]:
    """The headers among the stored options of a job."""
    if options is None or f'"{HEADERS}":' not in options:
        return {}
    found = from_json(options)
    return found.get(HEADERS) or {} if isinstance(found, dict) else {}


class Claim(NamedTuple):
    """A job held by this process, and the token that proves it."""

    job_id: str
    token: int
    generation: int
    task: str
    queue: str
    tier: int
    payload: str
    options: str | None
    retry_count: int
    crash_count: int
    origin_id: str | None = None
    run_id: str | None = None
    node: str | None = None
    path: str | None = None
    max_crashes: int | None = None
    call: tuple[Sequence[object], Mapping[str, object]] | None = None
    """A step's arguments as raw values, gathered from the outputs it needs; else they are in the payload."""
    seq: int = 0
    """The place in the queue from which it was taken."""
    is_expanded: bool = False
    """True if the value that the step returns will be expanded."""
    definition: str | None = None
    """The definition of its run, as it was when the claim was prepared and the run was going on."""
    slots: tuple[str, ...] = ()
    """The keys of limits against which it counts."""
    fault: Exception | None = None
    """Why it cannot be run, although it is held: that is the error of this attempt."""
    scheduled_for: int | None = None
    """Of a step: the nominal time of the tick that started its run."""
    signal_headers: tuple[str, ...] = ()
    """Of a step: the headers of the signals that were waited for right before it, as they are stored."""


class Attempt(NamedTuple):
    """A claim whose handler has ended: its outcome, and how many microseconds ago the attempt began and ended."""

    claim: Claim
    outcome: Outcome
    began_ago: int = 0
    ended_ago: int = 0
    began: bool = True
    """False: the claim is given back without its handler ever having run, which is no attempt."""
    kept: bool = False
    """True if an earlier run decided the outcome, and this run keeps it."""


class EndedStep(NamedTuple):
    """A step that has just become terminal: what follows from it belongs into the same transaction."""

    job_id: str
    run_id: str
    node: str
    path: str
    status: JobStatus
    reason: Reason | None
    output: str | None
    error: str | None = None
    run: object | None = None
    """The answer of the settle's `RunLookup` about its run; None: it was not asked."""
    kept: bool = False
    """True if the outcome was taken over from the run that this one was revived from."""


@dataclass(slots=True)
class Offer:
    """The room a settling process has left: what its settle makes ready, it may hold at once.

    Then the next step of a run needs no place in the queue and no claim: it is written as held, by the transaction
    that ended the step before. At most one claim holds it all the same, for the row is new, and so is the token.
    """

    process: str
    token: int
    tasks: Collection[str]
    room: int
    queues: dict[str, int] | None = None
    """How many claims the process may hold of each queue; None: no limit but `room`."""
    paused: frozenset[str] = frozenset()
    """Queues of which nothing is taken."""
    claims: list[Claim] = field(default_factory=list)
    has_receipt: bool = False
    """The receipt is written, along with the only step that it is for."""

    def close_with(self, job_id: str) -> str | None:
        """The receipt for this single job, to be written along with it. The offer accepts no further job after that."""
        if self.has_receipt or [claim.job_id for claim in self.claims] != [job_id]:
            return None
        self.has_receipt, self.room = True, 0
        return receipt_of(self.claims)

    def accepts(self, task: str, queue: str) -> bool:
        """True if there is room for one more job of this task and queue; the room is then taken."""
        if self.room <= 0 or task not in self.tasks or queue in self.paused:
            return False
        if self.queues is not None:
            if self.queues.get(queue, 0) <= 0:
                return False
            self.queues[queue] -= 1
        self.room -= 1
        return True


def receipt_of(claims: Sequence[Claim]) -> str:
    """The jobs of a claim, as its receipt has them."""
    return to_json([claim.job_id for claim in claims]).decode()


def jobs_of_receipt(text: object) -> list[str] | None:
    """The jobs that a receipt names; None: it cannot be read, as when it was changed by hand."""
    try:
        found = from_json(str(text))
        return [str(UUID(job_id)) for job_id in found] if isinstance(found, list) else None
    except (ValueError, TypeError, AttributeError):
        return None


class Follow(Protocol):
    """Does what follows from ended steps; may use an offer to hold what becomes ready."""

    def __call__(self, tx: Transaction, ended: Sequence[EndedStep], offer: Offer | None = None) -> None: ...


class RunLookup(Protocol):
    """Learns of the runs of settled steps by queries that travel with the settle. The queue only passes them on."""

    def ask(
        self, tx: Transaction, ids: Sequence[str], process: str | None
    ) -> Callable[[], tuple[dict[str, object], bool]]:
        """Query these runs.

        The function that is returned waits for the answer: what is known of each run, and whether the
        process still has its row."""

    def assume(self, tx: Transaction, claims: Sequence[Claim], process: str | None) -> dict[str, object]:
        """The runs of these claims as they were when the claims were made; if one has changed since, or the process
        has lost its row, the transaction fails."""


def nothing_follows(tx: Transaction, ended: Sequence[EndedStep], offer: Offer | None = None) -> None:
    """For queues without runs."""


def tier_of(priority: int) -> int:
    """Larger priorities come first; in the queue's order smaller tiers do."""
    return -priority


def lanes_of(jobs: Sequence[NewJob]) -> set[tuple[str, int]]:
    """The (queue, tier) in which some of these are ready at once."""
    each = jobs[:1] if isinstance(jobs, JobBatch) else jobs
    places = set(map(attrgetter("queue", "priority", "delay", "due_at"), each))
    return {(queue, tier_of(priority)) for queue, priority, delay, at in places if not delay and at is None}
