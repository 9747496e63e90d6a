"""The job queue as a source for the pump, and the register of what this process holds."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.errors import AdvancementFailed
from penstock.queue import claim as queue_claim
from penstock.queue import release as queue_release
from penstock.queue import settle as queue_settle
from penstock.queue.claim import Foresee
from penstock.queue.jobs import Attempt, Claim, Follow, Offer
from penstock.queue.settle import Settled
from penstock.queue.wakeups import CHORES, ENDED, READY, Wakeups, ready
from penstock.runtime.blame import blamed
from penstock.runtime.lanes import Lanes
from penstock.runtime.limiter import Limiter
from penstock.telemetry.events import AttemptSettled, ClaimLost, JobsClaimed, Stream
from penstock.values.ids import new_token
from penstock.values.limits import TaskLimits
from penstock.values.status import JobStatus

Hydrate = Callable[[Transaction, list[Claim], bool], list[Claim]]
NO_LIMITS: Mapping[str, TaskLimits] = {}


@dataclass(slots=True)
class Holdings:
    """Claims held by this process: by token, so that a receipt can go with its last job."""

    tokens: dict[int, set[str]] = field(default_factory=dict)
    busy: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, claims: Sequence[Claim]) -> None:
        with self.lock:
            for claim in claims:
                self.tokens.setdefault(claim.token, set()).add(claim.job_id)
                self.busy[claim.queue] += 1

    def emptied_by(self, claims: Sequence[Claim]) -> list[int]:
        """The tokens of which nothing is left once these are gone. Of those we know nothing about, nobody can say."""
        with self.lock:
            going: dict[int, set[str]] = {}
            for claim in claims:
                going.setdefault(claim.token, set()).add(claim.job_id)
            known = self.tokens
            return [token for token, ids in going.items() if token in known and known[token] <= ids]

    def knows(self, tokens: Set[int]) -> bool:
        """All of these are ours."""
        with self.lock:
            return tokens <= self.tokens.keys()

    def remove(self, claims: Sequence[Claim]) -> None:
        with self.lock:
            for claim in claims:
                ids = self.tokens.get(claim.token)
                if ids is None or claim.job_id not in ids:
                    continue
                ids.remove(claim.job_id)
                self.busy[claim.queue] -= 1
                if not ids:
                    del self.tokens[claim.token]

    def clear(self) -> None:
        with self.lock:
            self.tokens.clear()
            self.busy.clear()

    @property
    def count(self) -> int:
        with self.lock:
            return self.busy.total()


class JobSource:
    """Claims jobs and settles them, for one process."""

    name = "jobs"
    leads_on = True
    own_tables = True

    def __init__(
        self,
        process: Callable[[], str],
        tasks: Callable[[], Sequence[str]],
        lanes: Lanes,
        wakeups: Wakeups,
        stream: Stream,
        follow: Follow,
        hydrate: Hydrate | None = None,
        one_statement: bool = False,
        limited: Mapping[str, TaskLimits] = NO_LIMITS,
        foresee: Foresee | None = None,
    ) -> None:
        self.one_statement = one_statement
        self.process = process
        self.tasks = tasks
        self.lanes = lanes
        self.wakeups = wakeups
        self.stream = stream
        self.follow = follow
        self.hydrate = hydrate
        self.foresee = foresee
        self.limiter = Limiter(limited, process, wakeups, follow)
        self.holdings = Holdings()
        self._touched: set[str] = set()
        """Keys of limits against which something that was settled had counted."""
        self._settled: Settled | None = None
        self.met = False
        self._claimed: list[Claim] = []
        self._dropped: list[Claim] = []
        self._floors: dict[tuple[str, int], int] = {}
        self._seconds = 0.0
        self._steps_lately = False
        """There were steps of runs in the last claim that was not empty: then there will be in the next."""

    def settle(self, tx: Transaction, finished: Sequence[Attempt], room: int = 0) -> list[Claim]:
        emptied = self.holdings.emptied_by([attempt.claim for attempt in finished])
        self._touched = {key for attempt in finished for key in attempt.claim.slots}
        offer = self._offer(room) if room > 0 else None
        self._settled = queue_settle.settle(tx, finished, self.process(), emptied, self.follow, offer)
        # Of steps nobody waits for the end: the run tells of its own.
        if any(attempt.outcome.final and attempt.claim.run_id is None for attempt in self._settled.accepted):
            self.wakeups.tell_with(tx, [ENDED])
        self.wakeups.tell_others(tx, _given_back(self._settled))
        self._claimed = offer.claims if offer is not None else []
        return list(self._claimed)

    def _offer(self, room: int) -> Offer:
        """What has limits is not held before it is admitted: it takes its place in the queue."""
        queues = self.lanes.left(self.holdings.busy)
        tasks = frozenset(self.tasks()) - self.limiter.limited.keys()
        return Offer(self.process(), new_token(), tasks, room, queues)

    def claim(self, tx: Transaction, limit: int, alone: bool = False) -> list[Claim]:
        began = time.monotonic()
        self.met = False
        foresee = self.foresee if alone and self._steps_lately else None
        claims = self._take(tx, self.lanes.above_floor(limit, self._busy()), limit, foresee)
        if self.lanes.sweep_is_due(found=len(claims), wanted=limit):
            claims += self._sweep(tx, limit - len(claims), claims)
        self._claimed = [*self._claimed, *claims]
        if claims:
            self._steps_lately = any(claim.run_id is not None for claim in claims)
        self._seconds = time.monotonic() - began
        return claims

    def is_complete(self, claims: Sequence[Claim]) -> bool:
        if self._touched or self.limiter.concerns(claims):
            return False
        return self.hydrate is None or all(claim.run_id is None or claim.call is not None for claim in claims)

    def complete(self, tx: Transaction, claims: Sequence[Claim], by_reading: bool = False) -> list[Claim]:
        if by_reading and (self._touched or self.limiter.concerns(claims)):
            return []
        kept = [claim for claim in claims if claim.call is not None]
        rest = [claim for claim in claims if claim.call is None]
        if self.hydrate is not None and any(claim.run_id is not None for claim in rest):
            rest = self.hydrate(tx, rest, by_reading)
        kept += rest
        if by_reading:
            return kept
        if self._touched or self.limiter.concerns(kept):
            kept = self.limiter.admit(tx, kept, self._touched)
        ids = {claim.job_id for claim in kept}
        self._dropped = [claim for claim in claims if claim.job_id not in ids]
        return kept

    def forget(self, claims: Sequence[Claim]) -> None:
        self.holdings.remove(claims)

    def _busy(self) -> Counter[str]:
        """Per queue, what is held here, with what this transaction has taken so far."""
        if not self._claimed or self.lanes.queues is None:
            return self.holdings.busy
        return self.holdings.busy + Counter(claim.queue for claim in self._claimed)

    def _sweep(self, tx: Transaction, limit: int, taken: Sequence[Claim]) -> list[Claim]:
        began = time.monotonic()
        found = queue_claim.discover(tx, self.lanes.names)
        busy = self._busy() + Counter(claim.queue for claim in taken) if taken else self._busy()
        claims = self._take(tx, self.lanes.from_bottom(found, limit, busy), limit)
        self.lanes.swept(found, time.monotonic() - began)
        return claims

    def _take(
        self, tx: Transaction, lanes: Sequence[Lane], limit: int, foresee: Foresee | None = None
    ) -> list[Claim]:
        if not lanes:
            return []
        claims, floors = queue_claim.claim(
            tx, lanes, self.tasks(), limit, new_token(), self.process(), foresee
        )
        for lane, seq in floors.items():
            self._floors[lane] = max(seq, self._floors.get(lane, 0))
        self.met = self.met or bool(floors)
        return claims

    def committed(self) -> None:
        settled, self._settled, self._touched = self._settled, None, set()
        claimed, self._claimed = self._claimed, []
        dropped, self._dropped = self._dropped, []
        floors, self._floors = self._floors, {}
        self.lanes.learn(floors)
        if claimed:
            self.holdings.add(claimed)
            self.stream.emit(JobsClaimed(self.process(), len(claimed), self._seconds))
        if dropped:
            self.holdings.remove(dropped)
        if settled is not None:
            self.holdings.remove([attempt.claim for attempt in settled.finished])
            self._report(settled)

    def rolled_back(self) -> None:
        self._settled, self._claimed, self._dropped, self._floors = None, [], [], {}
        self._touched = set()

    def heard(self, subjects: Set[str]) -> bool:
        ours = False
        for subject in subjects:
            if subject == CHORES:
                self.wakeups.relay(CHORES)
                continue
            kind, _, rest = subject.partition("\t")
            queue, _, tier = rest.rpartition("\t")
            if kind == READY and queue:
                ours |= self.lanes.hear(queue, int(tier))
            else:
                self.lanes.force_sweep()
                ours = True
        return ours

    def recover(self, tx: Transaction) -> None:
        known = list(self.holdings.tokens)
        try:
            found = queue_release.release_unknown(tx, self.process(), known, self.follow)
        except AdvancementFailed as error:
            error.spend()
            raise
        if found.given_back:
            self.wakeups.tell_others(tx, [READY])
        if found.cancelled:
            self.wakeups.tell_with(tx, [ENDED])

    def blame(self, finished: Attempt, error: Exception) -> Attempt | None:
        return blamed(finished, error)

    def _report(self, settled: Settled) -> None:
        for attempt in settled.lost:
            claim = attempt.claim
            self.stream.emit(ClaimLost(claim.job_id, claim.task, claim.generation))
        if self.stream.wants(AttemptSettled):
            for attempt in settled.accepted:
                self.stream.emit(_event(attempt))


def _given_back(settled: Settled) -> set[str]:
    """The lanes of what can be claimed again at once: others may have more room for it."""
    return {
        ready(attempt.claim.queue, attempt.claim.tier)
        for attempt in settled.accepted
        if attempt.outcome.delay is not None and attempt.outcome.status is JobStatus.AVAILABLE
    }


def _event(attempt: Attempt) -> AttemptSettled:
    claim, outcome = attempt.claim, attempt.outcome
    return AttemptSettled(
        claim.job_id,
        claim.task,
        claim.queue,
        claim.generation,
        outcome.kind,
        outcome.status,
        outcome.reason,
        (attempt.began_ago - attempt.ended_ago) / 1_000_000,
        str(outcome.failure) if outcome.failure else None,
    )
