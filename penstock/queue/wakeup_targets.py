"""The processes that can be told of work: those that listen, by what their rows say of them. Hints, never truth.

A job needs one worker, not all of them. The teller names that one, and another that looks a moment later, in
case the first is gone or does not get to it. Who is named has to know the task and serve the queue; of several, those
that were named a while ago come first, and each teller has an order of its own: so the same few are woken as long as
they are enough, and the others rest.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple
from zlib import crc32

from penstock.database.transaction import Transaction
from penstock.queue.jobs import JobBatch, NewJob
from penstock.queue.unknown_tasks import KNOWS, marks
from penstock.values.ids import new_token
from penstock.values.parse import parse_queues
from penstock.values.typed_json.json_text import loads

CHANNEL_KEY = "ear"
"""Where a process row says on which channel it can be told; None: on none, so it looks by itself."""
ALL = "all"
JOB_ROLES = ("all", "worker")
HOLD = 0.5
"""A worker that was named so many seconds ago has likely done what it was named for."""
FRESH = 15.0
"""After so many seconds the rows are read again, if there is anything to tell."""
READ = "SELECT id, host, role, details FROM {processes} WHERE role <> 'supervisor'"


class Member(NamedTuple):
    """A process that listens."""

    id: str
    host: str
    works: bool
    """Whether it takes jobs."""
    channel: str
    queues: frozenset[str] | None
    """The queues it serves; None: all."""
    knows: frozenset[str]
    concurrency: int

    def serves(self, queue: str) -> bool:
        return self.works and (self.queues is None or queue in self.queues)


class Needs(NamedTuple):
    """Everything known of the work that is told of."""

    tasks: frozenset[str] = frozenset()
    """The marks of its tasks; none: they are not known."""
    jobs: int = 1
    hops: int = 3
    """So often processes without room may pass the wake-up on."""

    def merged(self, other: Needs) -> Needs:
        tasks = self.tasks | other.tasks if self.tasks and other.tasks else frozenset()
        return Needs(tasks, self.jobs + other.jobs, min(self.hops, other.hops))


def needs_of(jobs: Sequence[NewJob]) -> Needs:
    tasks = {jobs[0].task} if isinstance(jobs, JobBatch) else {job.task for job in jobs}
    return Needs(_marks(frozenset(tasks)), len(jobs))


@lru_cache(64)
def _marks(tasks: frozenset[str]) -> frozenset[str]:
    return frozenset(marks(tasks))


class Named(NamedTuple):
    """The processes that are told."""

    now: Sequence[Member]
    later: Sequence[Member]
    """Those that look a moment later."""


@dataclass(slots=True)
class Fleet:
    """The listening processes, as they were when the rows were last read."""

    members: Sequence[Member] = ()
    silent: bool = False
    """There are some that do not say whether they listen: they have to be told as they expect it, all at once."""
    read_at: float = -FRESH
    salt: int = field(default_factory=new_token)
    named: dict[str, float] = field(default_factory=dict)
    """When each was named last, by us."""

    @property
    def stale(self) -> bool:
        return time.monotonic() - self.read_at >= FRESH

    def learn(self, rows: Iterable[Sequence[object]]) -> None:
        """Read the rows. A row that cannot be read is one that does not say."""
        members: list[Member] = []
        silent = False
        for id, host, role, details in rows:
            try:
                member = _member(str(id), str(host), str(role), loads(str(details)))
            except Exception:
                silent = True
            else:
                members += [] if member is None else [member]
        members.sort(key=lambda member: crc32(f"{self.salt} {member.id}".encode()))
        self.members, self.silent, self.read_at = members, silent, time.monotonic()
        living = {member.id for member in members}
        self.named = {id: at for id, at in self.named.items() if id in living}

    def forget(self) -> None:
        """The rows cannot be read: for a while all are told."""
        self.members, self.silent, self.read_at = (), True, time.monotonic()

    def name_for(self, queue: str, needs: Needs, here: Collection[str]) -> Named | None:
        """Whom to tell of work in this queue; None: all.

        `here`: the channels of this process's own workers, which hear of it anyway.
        """
        if self.silent:
            return None
        serving = [member for member in self.members if member.serves(queue)]
        fit = [member for member in serving if member.knows >= needs.tasks]
        if not fit or (not needs.tasks and any(member.knows != fit[0].knows for member in fit)):
            return None
        there = self._in_order(member for member in fit if member.channel not in here)
        at_home = len(there) < len(fit)
        chosen, held = list[Member](), 0
        for member in there:
            if held >= needs.jobs:
                break
            chosen.append(member)
            held += member.concurrency
        if len(chosen) == len(there) > 2:
            return None
        spare = [] if at_home or len(chosen) > 1 else _spare(chosen[0], there[1:])
        now = time.monotonic()
        self.named.update((member.id, now) for member in chosen)
        return Named(chosen, spare)

    def name_two(self) -> Named | None:
        """For the housekeeping, which every process does."""
        if self.silent or not self.members:
            return None
        return Named(self._in_order(self.members)[:2], ())

    def _in_order(self, members: Iterable[Member]) -> list[Member]:
        """A member that was not named lately comes first; else the one that was named longest ago."""
        lately = time.monotonic() - HOLD

        def since(member: Member) -> float:
            return max(lately, self.named.get(member.id, 0.0))

        return sorted(members, key=since)


def _spare(first: Member, others: Sequence[Member]) -> Sequence[Member]:
    """One that does not share the fate of the first, if there is one."""
    elsewhere = [member for member in others if member.host != first.host]
    return (elsewhere or others)[:1]


def _member(id: str, host: str, role: str, told: Any) -> Member | None:
    channel = told[CHANNEL_KEY]
    if not isinstance(channel, str):
        return None
    text = told.get("queues", ALL)
    queues = None if text == ALL else frozenset(queue.name for queue in parse_queues(str(text)))
    knows = frozenset(map(str, told[KNOWS]))
    concurrency = max(1, int(told.get("concurrency", 1)))
    return Member(id, host, role in JOB_ROLES, channel, queues, knows, concurrency)


def read(tx: Transaction) -> list[tuple[object, ...]]:
    """The rows of all processes that could listen."""
    tx.stage("fleet")
    return [tuple(row) for row in tx.rows(READ)]
