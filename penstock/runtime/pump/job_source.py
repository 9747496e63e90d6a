"""The job queue as a source for the pump, and the register of what this process holds."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from penstock.database.boundary import Boundary
from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.errors import AdvancementFailed
from penstock.queue import claim as queue_claim
from penstock.queue import release as queue_release
from penstock.queue import settle as queue_settle
from penstock.queue.claim import PrefetchRuns
from penstock.queue.jobs import Attempt, Claim, Follow, Offer, RunLookup, headers_of
from penstock.queue.rules import second_look
from penstock.queue.settle import Settled
from penstock.queue.wakeups import (
    CHORES,
    CHORES_BY_NAME,
    CONTROLS,
    ENDED,
    LATER,
    READY,
    YOURS,
    Wakeups,
    lane_of,
    ready,
)
from penstock.runtime.pump.lanes import ASKED, Lanes
from penstock.runtime.pump.limiter import Limiter
from penstock.runtime.pump.source import Heed, Source
from penstock.telemetry.events import AttemptSettled, ClaimLost, JobsClaimed, Stream
from penstock.values.failure import Failure
from penstock.values.ids import new_token
from penstock.values.limits import TaskLimits
from penstock.values.outcome import Outcome
from penstock.values.status import JobStatus, OutcomeKind, Reason

# An outcome that the database refuses, although it takes others: what is to be written in its place. Pure.


def outcome_for_refusal(finished: Attempt, error: Exception, is_duplicate: bool = False) -> Attempt | None:
    """The outcome to settle instead: first a failure with this error; if the database refuses that too, a failure
    without text; then None. `is_duplicate`: a row that the settle adds is there already."""
    if isinstance(error, AdvancementFailed):
        return _unplanned(finished, error)
    reason = finished.outcome.reason
    if reason not in REFUSED:
        reason = Reason.ROW_DAMAGED if is_duplicate else Reason.RESULT_NOT_SERIALIZABLE
        return finished._replace(outcome=_failed(Failure.of(error), reason))
    return finished._replace(outcome=_failed(None, reason), began=False) if finished.began else None


REFUSED = (Reason.RESULT_NOT_SERIALIZABLE, Reason.ROW_DAMAGED)


def _failed(failure: Failure | None, reason: Reason | None) -> Outcome:
    return Outcome(OutcomeKind.ERRORED, failure=failure, reason=reason)


def _unplanned(finished: Attempt, error: AdvancementFailed) -> Attempt:
    """Nothing can be planned from it: it is tried again, then as a failure, and in the end its run is given up.

    If it is another run that cannot be planned, the parent of this one, nothing is wrong with the step.
    """
    left, another = error.spend(), error.run_id != finished.claim.run_id
    if left or another or finished.outcome.kind is not OutcomeKind.SUCCEEDED:
        return finished
    failure = Failure.of(error.__cause__ or error)
    outcome = Outcome(OutcomeKind.ERRORED, failure=failure, reason=Reason.ADVANCEMENT_FAILED)
    return finished._replace(outcome=outcome)


PrepareClaimedSteps = Callable[[Transaction, list[Claim], bool], list[Claim]]
TIER = re.compile(r"-?[0-9]{1,10}")
"""The text of a tier in a wake-up; other text is ignored."""
NO_LIMITS: Mapping[str, TaskLimits] = {}
ANYTHING = (READY, "written", "reconnect")
"""Subjects that may concern any lane; the listener itself makes the last two."""
MOMENT = 0.1
"""Seconds after which this process looks at work for which another process was woken."""


@dataclass(slots=True)
class HeldClaims:
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
        """The tokens of which these are the last claims, without tokens that this process does not know."""
        with self.lock:
            going: dict[int, set[str]] = {}
            for claim in claims:
                going.setdefault(claim.token, set()).add(claim.job_id)
            known = self.tokens
            return [token for token, ids in going.items() if token in known and known[token] <= ids]

    def knows(self, tokens: Set[int]) -> bool:
        """Add claims that this process now holds."""
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


class JobSource(Source[Claim, Attempt]):
    """Claims jobs and settles them, for one process."""

    name = "jobs"
    unblocks_work = True
    own_tables = True

    def __init__(
        self,
        process: Callable[[], str],
        tasks: Callable[[], Sequence[str]],
        lanes: Lanes,
        wakeups: Wakeups,
        stream: Stream,
        follow: Follow,
        prepare_claimed_steps: PrepareClaimedSteps | None = None,
        one_statement: bool = False,
        limited: Mapping[str, TaskLimits] = NO_LIMITS,
        prefetch_runs: PrefetchRuns | None = None,
        lookup: RunLookup | None = None,
    ) -> None:
        self.one_statement = one_statement
        self.process, self.tasks = process, tasks
        self.lanes, self.wakeups, self.stream = lanes, wakeups, stream
        self.follow, self.prepare_claimed_steps = follow, prepare_claimed_steps
        self.prefetch_runs, self.lookup = prefetch_runs, lookup
        self.limiter = Limiter(limited, process, wakeups, follow)
        self.holdings = HeldClaims()
        self._touched: set[str] = set()
        """Keys of limits whose slots the settled jobs have freed."""
        self._settled: Settled | None = None
        self.met = False
        self._claimed: list[Claim] = []
        self._dropped: list[Claim] = []
        self._floors: dict[tuple[str, int], int] = {}
        self._empty: list[tuple[str, int]] = []
        self._seconds = 0.0
        self.ready: Boundary[str] = Boundary(wakeups.database, stream, "the ready job")
        self._tried: Sequence[Lane] = ()
        """The lanes of the last claim."""
        self._brief = False
        """True if the next claim looks for work of another process: it is most likely gone, so no sweep is needed."""
        self._steps_lately = False
        """True if the last claim that was not empty had steps of runs: then the next one probably has too."""

    def settle(self, tx: Transaction, finished: Sequence[Attempt], room: int = 0) -> list[Claim]:
        emptied = self.holdings.emptied_by([attempt.claim for attempt in finished])
        self._touched = {key for attempt in finished for key in attempt.claim.slots}
        offer = self._offer(room) if room > 0 else None
        self._settled = queue_settle.settle(
            tx, finished, self.process(), emptied, self.follow, offer, self.lookup
        )
        # No caller waits for the end of a step: the run sends a wake-up when it ends.
        if any(attempt.outcome.final and attempt.claim.run_id is None for attempt in self._settled.accepted):
            self.wakeups.notify_on_commit(tx, [ENDED])
        self.wakeups.notify_other_processes(tx, _given_back(self._settled))
        self._claimed = offer.claims if offer is not None else []
        return list(self._claimed)

    def _offer(self, room: int) -> Offer:
        """The room for next steps. Tasks with limits are left out: their jobs go through the queue and admission."""
        queues = self.lanes.left(self.holdings.busy)
        tasks = frozenset(self.tasks()) - self.limiter.limited.keys()
        return Offer(self.process(), new_token(), tasks, room, queues, self.lanes.paused)

    def claim(self, tx: Transaction, limit: int, alone: bool = False) -> list[Claim]:
        began = time.monotonic()
        self.met = False
        prefetch_runs = self.prefetch_runs if alone and self._steps_lately else None
        asked = self.lanes.above_floor(limit, self._busy())
        claims = self._take(tx, asked, limit, prefetch_runs)
        if len(claims) < limit:
            self._empty = [lane for lane in ((ln.queue, ln.tier) for ln in asked) if lane not in self._floors]
        brief, self._brief = self._brief, False
        if not brief and self.lanes.sweep_is_due(found=len(claims), wanted=limit):
            claims += self._sweep(tx, limit - len(claims), claims)
        self._claimed = [*self._claimed, *claims]
        if claims:
            self._steps_lately = any(claim.run_id is not None for claim in claims)
        self._seconds = time.monotonic() - began
        return claims

    def is_complete(self, claims: Sequence[Claim]) -> bool:
        if self._touched or self._is_limited(claims) or _is_marked(claims):
            return False
        return self.prepare_claimed_steps is None or all(
            claim.run_id is None or claim.call is not None for claim in claims
        )

    def complete(self, tx: Transaction, claims: Sequence[Claim], by_reading: bool = False) -> list[Claim]:
        if by_reading and (self._touched or self._is_limited(claims) or _is_marked(claims)):
            return []
        kept = [claim for claim in claims if claim.call is not None]
        rest = [claim for claim in claims if claim.call is None]
        if self.prepare_claimed_steps is not None and any(claim.run_id is not None for claim in rest):
            rest = self.prepare_claimed_steps(tx, rest, by_reading)
        kept += rest
        if by_reading:
            return kept
        if _is_marked(kept):
            kept = self._look_again(tx, kept)
        if self._touched or self._is_limited(kept):
            kept = self.limiter.admit(tx, kept, self._touched)
        ids = {claim.job_id for claim in kept}
        self._dropped = [claim for claim in claims if claim.job_id not in ids]
        if self._dropped:
            # All claims of a turn are known here. Several may share a token, whose receipt is removed with the last
            # of them.
            queue_claim.forget_receipts(tx, self._dropped, kept)
        return kept

    def _is_limited(self, claims: Sequence[Claim]) -> bool:
        """True if some of these claims need an admission, a second look or their arguments before they run."""
        return bool(self.limiter.limited) and self.limiter.concerns(claims)

    def _look_again(self, tx: Transaction, claims: Sequence[Claim]) -> list[Claim]:
        kept, expired = second_look.look(tx, claims, self.process(), self.follow)
        if expired:
            self.wakeups.notify_on_commit(tx, [ENDED])
        return kept

    def forget(self, claims: Sequence[Claim]) -> None:
        self.holdings.remove(claims)

    def _busy(self) -> Counter[str]:
        """The number of claims held here per queue, including those of this transaction."""
        if not self._claimed or self.lanes.queues is None:
            return self.holdings.busy
        return self.holdings.busy + Counter(claim.queue for claim in self._claimed)

    def _sweep(self, tx: Transaction, limit: int, taken: Sequence[Claim]) -> list[Claim]:
        began = time.monotonic()
        found = queue_claim.discover(tx, self.lanes.names, self.lanes.sweeps_from, ASKED)
        busy = self._busy() + Counter(claim.queue for claim in taken) if taken else self._busy()
        claims = self._take(tx, self.lanes.from_bottom(found, limit, busy), limit)
        self.lanes.swept(found, time.monotonic() - began)
        return claims

    def _take(
        self, tx: Transaction, lanes: Sequence[Lane], limit: int, prefetch_runs: PrefetchRuns | None = None
    ) -> list[Claim]:
        if not lanes:
            return []
        self._tried = lanes
        claims, floors = queue_claim.claim(
            tx, lanes, self.tasks(), limit, new_token(), self.process(), prefetch_runs
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
        empty, self._empty = self._empty, []
        self.lanes.learn(floors)
        if empty:
            self.lanes.emptied(empty)
        if claimed:
            if not self.ready.is_empty:
                self.ready.handled([claim.job_id for claim in claimed])
            self.holdings.add(claimed)
            self.stream.emit(JobsClaimed(self.process(), len(claimed), self._seconds))
        if dropped:
            self.holdings.remove(dropped)
        if settled is not None:
            self.holdings.remove([attempt.claim for attempt in settled.finished])
            self._report(settled)

    def rolled_back(self) -> None:
        self._settled, self._claimed, self._dropped, self._floors = None, [], [], {}
        self._touched, self._empty = set(), []

    def heard(self, subjects: Set[str], room: int = 1) -> Heed | None:
        after: set[float] = set()
        there = True
        for subject in subjects:
            lane = lane_of(subject)
            if subject in (CHORES, CHORES_BY_NAME, CONTROLS):
                self.wakeups.relay(CHORES)
            elif subject in ANYTHING:
                self.lanes.force_sweep()
                after.add(0.0)
                there = False
            elif lane is not None and self.lanes.hear(lane.queue, lane.tier):
                if lane.kind == YOURS and (
                    room <= 0 or not self.lanes.has_room(lane.queue, self.holdings.busy)
                ):
                    self.wakeups.pass_on(lane)
                after.add(MOMENT if lane.kind == LATER else 0.0)
                there = there and lane.kind != READY
        self._brief = after == {MOMENT}
        return Heed(min(after), there) if after else None

    def recover(self, tx: Transaction) -> None:
        known = list(self.holdings.tokens)
        try:
            found = queue_release.release_unknown(tx, self.process(), known, self.follow)
        except AdvancementFailed as error:
            error.spend()
            raise
        if found.given_back:
            self.wakeups.notify_other_processes(tx, [READY])
        if found.cancelled:
            self.wakeups.notify_on_commit(tx, [ENDED])

    def set_aside(self, tx: Transaction, error: Exception) -> bool:
        def pause(job_id: str) -> float:
            return self.ready.set_aside(job_id, error)

        return queue_claim.put_off(tx, self._tried, self.tasks(), pause) is not None

    def name_of(self, finished: Attempt) -> str:
        return f"{finished.claim.job_id} ({finished.claim.task})"

    def blame(self, finished: Attempt, error: Exception) -> Attempt | None:
        return outcome_for_refusal(finished, error, self.wakeups.database.dialect.is_duplicate(error))

    def _report(self, settled: Settled) -> None:
        for attempt in settled.lost:
            claim = attempt.claim
            self.stream.emit(ClaimLost(claim.job_id, claim.task, claim.generation))
        if self.stream.wants(AttemptSettled):
            for attempt in (*settled.accepted, *settled.earlier):
                self.stream.emit(_event(attempt))


def _is_marked(claims: Sequence[Claim]) -> bool:
    """True if some of these have to be looked at again. Most jobs have no options, and then there is no mark."""
    return any(claim.options is not None for claim in claims) and second_look.concerns(claims)


def _given_back(settled: Settled) -> set[str]:
    """The lanes of what can be claimed again at once: others may have more room for it."""
    return {
        ready(attempt.claim.queue, attempt.claim.tier)
        for attempt in settled.accepted
        if attempt.outcome.delay is not None and attempt.outcome.status is JobStatus.AVAILABLE
    }


def _event(attempt: Attempt) -> AttemptSettled:
    claim, outcome, failure = attempt.claim, attempt.outcome, attempt.outcome.failure
    return AttemptSettled(
        claim.job_id,
        claim.task,
        claim.queue,
        claim.generation,
        outcome.kind,
        outcome.status,
        outcome.reason,
        (attempt.began_ago - attempt.ended_ago) / 1_000_000,
        str(failure) if failure else None,
        failure.type if failure else None,
        (failure.traceback or None) if failure else None,
        claim.run_id,
        headers_of(claim.options),
    )
