"""The pump: one loop, one connection, one transaction a turn.

A turn settles what is finished, advances what that unblocks, claims what there is room for, and hands the new claims
on in one call. Nothing is delayed to make a batch: while one transaction is under way, the next batch collects by
itself. Outcomes leave the outbox only when their transaction is committed.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Generic, TypeVar

from penstock.database.boundary import Boundary
from penstock.database.connections import ConnectionHandle
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.runtime.pump.idle import IdleMode
from penstock.runtime.pump.source import Source
from penstock.runtime.pump.turn_gate import TurnGate
from penstock.runtime.pump.waker import Waker
from penstock.runtime.service import Service, Turn
from penstock.telemetry import fault_points
from penstock.telemetry.events import Stream

C = TypeVar("C")
F = TypeVar("F")

CAUTIOUS_TURNS = 20
"""For how many turns the pump settles without assumptions after one was wrong."""
SKIPPED_PAUSES = 6
"""How many steps of the growing pauses are skipped, if wake-ups tell of new work."""
MOST_COLLECTED = 250
"""How many outcomes the pump collects before a turn, at most; never more than claims that wait to be run."""
FIRST_COLLECTED, FIRST_COLLECT_FOR = 64, 0.004
"""A turn begins with so many outcomes if they come within so many seconds."""
LEAST_WAITING = 64
"""If fewer claims wait to be run, each outcome is settled at once."""
COLLECT_FOR = 0.04
"""Seconds that the pump waits for these outcomes, at most: a process that shares its core with others is slow."""
MOST_COLLISIONS, LONGEST_COLLISION = 5, 10.0
"""How many conflicts in a row, and over how many seconds, count as trouble."""
RETRY_PAUSES = (0.0, 0.004, 0.1)
"""Seconds before another try: after the first lost race, after the second, and at most."""


class Pump(Service, Generic[C, F]):
    """Moves work from a source to executors, and outcomes back."""

    _in_trouble_claiming = _collecting = False
    waiting: Callable[[], int] = staticmethod(lambda: 0)
    """How many claims wait here to be run."""
    gate: TurnGate | None = None
    """Limits how many processes of this machine settle a backlog at the same time; None: there is no limit."""
    worth_a_turn = MOST_COLLECTED
    """The number of outcomes that the pump collects before a turn, at most."""
    _goal = MOST_COLLECTED
    _look_at = math.inf
    """When to look at what another process was told of, and does not seem to come to."""

    def __init__(
        self,
        database: Database,
        source: Source[C, F],
        room: Callable[[], int],
        hand_over: Callable[[Sequence[C]], None],
        waker: Waker,
        stream: Stream,
        batch: int,
        poll: tuple[float, float],
    ) -> None:
        super().__init__(stream)
        self.name = f"pump of {source.name}"
        self.database = database
        self.source = source
        self.room, self.hand_over = room, hand_over
        self.waker = waker
        self.batch = batch
        self.shortest_pause, self.longest_pause = poll
        self.claiming = True
        self.rest = IdleMode()
        self.link = ConnectionHandle(database, dedicated=source.own_tables)
        self.outcomes: Boundary[str] = Boundary(database, stream, "the outcome of")
        self._outbox: deque[F] = deque()
        self._refused: list[tuple[float, F]] = []
        self._empty_turns, self._doubtful = 0, False
        self._found = 0
        """How many were claimed in this turn; not all of them need be something to run."""
        self._met = False
        """Something was claimed in this turn, although it need not be something to run."""
        self._satisfied = False
        """The last turn has left nothing that it could have taken."""
        self._asked_at = 0.0
        self._nothing_waits = False
        """True if the last look found less than there was room for, and no wake-up has told of more."""
        self._just_heard = False
        """True if nothing has happened since the last wait ended: the listener need not be asked again."""
        self._collisions, self._colliding_since, self._cautious, self._settling = 0, 0.0, 0, 0
        self._one_at_a_time, self._enough = threading.Lock(), threading.Event()

    def finished(self, work: F) -> None:
        """Add an outcome, which the next turn settles."""
        self._outbox.append(work)
        if self._collecting and not self._is_worth_waiting():
            self._enough.set()
        self.waker.wake()

    @property
    def unsettled(self) -> int:
        return len(self._outbox)

    @property
    def refused(self) -> int:
        """Outcomes that the database refuses in every form; they are tried again later."""
        return len(self._refused)

    @property
    def unrecorded(self) -> int:
        """Outcomes that would be lost with this process: those that wait, and those on their way to the database."""
        return len(self._outbox) + self._settling

    @property
    def in_doubt(self) -> bool:
        """True if an answer was lost: this process may hold claims that it does not know."""
        return self._doubtful

    def doubt(self) -> None:
        """This process may hold claims that it does not know: the next turn gives them back first."""
        self._doubtful = True
        self.waker.wake()

    def turn(self) -> Turn:
        with self._one_at_a_time:
            turn = self._turn()
            self._collisions = 0
            return turn

    def _trouble(self, error: Exception) -> None:
        """Handle a conflict such as a deadlock: repeat at once, then with random pauses.

        Two who go again at the same moment meet again: the more often that was so, the longer one of them waits.
        """
        if self._collisions == 0:
            self._colliding_since = time.monotonic()
        self._collisions += 1
        lasts = (
            self._collisions > MOST_COLLISIONS
            and time.monotonic() - self._colliding_since > LONGEST_COLLISION
        )
        if lasts or not self.database.dialect.is_transient(error):
            self._in_trouble_claiming = self.claiming
            super()._trouble(error)
            return
        first, second, most = RETRY_PAUSES
        longest = first if self._collisions == 1 else min(second * 2 ** (self._collisions - 2), most)
        self.stopping.wait(random.uniform(0, longest))

    @property
    def leaving(self) -> bool:
        """Also where it was told to claim no more: it is the claims that were in trouble."""
        return super().leaving or (self._in_trouble_claiming and not self.claiming)

    def _turn(self) -> Turn:
        if self._doubtful:
            self._transact(self.source.recover)
            self._doubtful = False
        if self._refused:
            self._try_refused_again()
        self._settling = min(len(self._outbox), self.batch)
        finished = [self._outbox.popleft() for _ in range(self._settling)]
        limit = min(self.room(), self.batch) if self.claiming and not self.stopping.is_set() else 0
        self._hear_in_passing(finished)
        if not finished and limit <= 0:
            return Turn.IDLE
        try:
            if not finished and self.source.one_statement:
                claims = self._claim_alone(limit)
            else:
                claims = self._settle(finished, limit)
        except Exception as error:
            self._settling = 0
            self._put_back(finished, error)
            if self._is_outage(error):
                raise
            if finished:
                self.hand_over([])
                return Turn.WORKED
            claims = self._claim_apart(limit, error)
        self._settling = 0
        self._settled(finished)
        if fault_points.watched:
            fault_points.reach("hand_over")
        if claims or finished:
            self._empty_turns = self._first_pause if claims else self._empty_turns
            self.hand_over(claims)
        elif not self._met:
            self._empty_turns += 1
        self._satisfied = self._found < limit or limit <= 0
        if finished or self._met:
            self.rest.activity()
            return Turn.WORKED
        return Turn.IDLE

    def _hear_in_passing(self, finished: Sequence[F]) -> None:
        """Read wake-ups that came since the last pause, before the settle may hold the next steps."""
        just_heard, self._just_heard = self._just_heard, False
        if finished and self._nothing_waits and self.source.unblocks_work and not just_heard:
            self._hear(self.waker.wait(0))
        if self._look_at <= time.monotonic():
            self._look_at = math.inf

    def run(self) -> None:
        """After a turn that found less than there was room for, another look right away would find nothing."""
        while not self.stopping.is_set():
            self._satisfied = False
            turn = self.guarded_turn() if self.waiting() < LEAST_WAITING else self._backlog_turn()
            rests = turn is Turn.IDLE or (turn is Turn.WORKED and self._satisfied)
            if rests and not self.stopping.is_set():
                self.guarded_pause()

    def _backlog_turn(self) -> Turn:
        """A turn while many claims wait to be run, in a place at the gate that the processes of this machine share."""
        self._collect()
        place = self.gate.enter() if self.gate is not None else None
        try:
            return self.guarded_turn()
        finally:
            if self.gate is not None and place is not None:
                self.gate.leave(place)

    def _collect(self) -> None:
        """While many claims wait to be run, collect outcomes for a larger batch: each turn has a cost.

        A process that has a core for itself begins a turn with few: more arrive while the database works. One that
        shares its core is slower, and collects more.
        """
        if not self._wait_for_outcomes(FIRST_COLLECTED, FIRST_COLLECT_FOR):
            self._wait_for_outcomes(self.worth_a_turn, COLLECT_FOR)

    def _wait_for_outcomes(self, goal: int, seconds: float) -> bool:
        """Wait for so many outcomes, or for as many as claims wait to be run; False if they do not come in time."""
        self._goal = min(goal, self.worth_a_turn)
        if not self._is_worth_waiting():
            return True
        self._enough.clear()
        self._collecting = True
        # Asked again after `_collecting` is set: the outcome that makes it enough may have come in between.
        in_time = not self._is_worth_waiting() or self._enough.wait(seconds)
        self._collecting = False
        return in_time

    def _is_worth_waiting(self) -> bool:
        waiting = self.waiting()
        enough = min(self._goal, waiting) if waiting >= LEAST_WAITING else 0
        return len(self._outbox) < enough and not self.stopping.is_set()

    def _settle(self, finished: Sequence[F], limit: int) -> list[C]:
        """Do the transaction optimistically; if an assumption fails, repeat it without assumptions."""
        if self._cautious > 0:
            self._cautious -= 1
        elif finished:
            try:
                return self._transact(self._settle_and_claim, finished, limit, presuming=True)
            except Exception as error:
                if not self.database.dialect.is_failed_assumption(error):
                    raise
                self._cautious = CAUTIOUS_TURNS
        return self._transact(self._settle_and_claim, finished, limit)

    def _settle_and_claim(self, tx: Transaction, finished: Sequence[F], limit: int) -> list[C]:
        """Settle and claim.

        Right after a claim that found nothing more, the next steps are held without another claim.
        """
        just_now = time.monotonic() - self._asked_at < self.shortest_pause
        knows = self.source.unblocks_work and self._nothing_waits and just_now
        holds = knows and self.database.dialect.fast_path.offer
        claims = self.source.settle(tx, finished, limit if holds else 0) if finished else []
        if holds or limit <= 0:
            self._met, self._found = bool(claims), len(claims)
        else:
            claims = self._look(tx, limit)
        return claims if self.source.is_complete(claims) else self.source.complete(tx, claims)

    def _look(self, tx: Transaction, limit: int, alone: bool = False) -> list[C]:
        self._nothing_waits = False
        claims = self.source.claim(tx, limit, alone)
        self._met, self._found = bool(claims) or self.source.met, len(claims)
        self._nothing_waits, self._asked_at = len(claims) < limit, time.monotonic()
        return claims

    def _claim_alone(self, limit: int) -> list[C]:
        """The short way for an idle worker: one round trip to the database, or as few as reading takes."""
        held: list[C] = []
        read = self._transact(self._look_and_read, limit, held, single=True)
        if read or not held:
            return read
        try:
            return self._transact(self.source.complete, held)
        except BaseException:
            self.source.forget(held)
            raise

    def _claim_apart(self, limit: int, error: Exception) -> list[C]:
        """Claim fewer jobs at a time until the failing one is alone; it is set aside, and the others go on."""
        self._transact(self.source.recover)
        self._doubtful = False
        while limit > 1:
            limit //= 2
            try:
                return self._transact(self._settle_and_claim, (), limit)
            except Exception as problem:
                if self._is_outage(problem):
                    raise
                error = problem
        if not self._transact_aside(error):
            raise error
        self._met = True
        return []

    def _transact_aside(self, error: Exception) -> bool:
        with self.database.transaction(self.link) as tx:
            return self.source.set_aside(tx, error)

    def _look_and_read(self, tx: Transaction, limit: int, held: list[C]) -> list[C]:
        """Claim, then read what the claims lack. The claims in `held` are committed once the database has answered.

        If reading fails after that, `recover` gives them back.
        """
        held += self._look(tx, limit, alone=True)
        return held if self.source.is_complete(held) else self.source.complete(tx, held, True)

    def _transact(
        self,
        work: Callable[..., list[C] | None],
        *args: object,
        single: bool = False,
        presuming: bool = False,
    ) -> list[C]:
        try:
            with self.database.transaction(self.link, single=single) as tx:
                tx.optimistic = presuming and self._presumes
                result = work(tx, *args)
        except BaseException:
            self.source.rolled_back()
            raise
        self.source.committed()
        return result or []

    @property
    def _presumes(self) -> bool:
        fast_path = self.database.dialect.fast_path
        return self.source.own_tables and fast_path.settle and fast_path.presume

    def _put_back(self, finished: list[F], error: Exception) -> None:
        """Keep the outcomes. What fails for a reason of its own is found by halving, and fails by itself."""
        if self._is_outage(error) or not finished:
            self._doubtful = True
            self._outbox.extendleft(reversed(finished))
            return
        for half in _halves(finished):
            try:
                self._transact(self.source.settle, half)
            except Exception as problem:
                if len(half) > 1 or self._is_outage(problem):
                    self._put_back(half, problem)
                elif (blamed := self.source.blame(half[0], problem)) is not None:
                    self._outbox.append(blamed)
                else:
                    pause = self.outcomes.set_aside(self.source.name_of(half[0]), problem)
                    self._refused.append((time.monotonic() + pause, half[0]))
            else:
                self._settled(half)

    def _try_refused_again(self) -> None:
        """Outcomes that were refused in every form, when their time has come: perhaps the fault is not their own."""
        now = time.monotonic()
        self._outbox.extend(work for again, work in self._refused if again <= now)
        self._refused = [(again, work) for again, work in self._refused if again > now]

    def _settled(self, finished: Sequence[F]) -> None:
        if not self.outcomes.is_empty:
            self.outcomes.handled([self.source.name_of(work) for work in finished])

    def _is_outage(self, error: Exception) -> bool:
        return self.database.is_outage(error, own_tables=self.source.own_tables)

    def pause(self) -> None:
        if self._outbox:
            return
        self._wait(min(self.shortest_pause * 1.5 ** min(self._empty_turns, 30), self.longest_pause))
        while self.rest.is_on and not self._is_called:
            self._wait(self.longest_pause)
        self._just_heard = True

    @property
    def _is_called(self) -> bool:
        """Wake the pump without ending idle mode."""
        due = self._look_at <= time.monotonic()
        return bool(self._outbox) or self._doubtful or due or self.stopping.is_set()

    def _wait(self, seconds: float) -> None:
        self._hear(self.waker.wait(max(0.0, min(seconds, self._look_at - time.monotonic()))))

    def _hear(self, subjects: Set[str]) -> None:
        """Handle the subjects of wake-ups; unknown ones are ignored."""
        if not subjects:
            return
        heed = self.source.heard(subjects, self.room() if self.claiming else 0)
        if heed is None:
            return
        self._nothing_waits = False
        if heed.after > 0:
            self._look_at = min(self._look_at, time.monotonic() + heed.after)
        else:
            self._empty_turns = self._first_pause if heed.there else 0
            self.rest.activity()

    @property
    def _first_pause(self) -> int:
        """A worker that is sure to be told of the next job need not look for it right after the last."""
        return SKIPPED_PAUSES if self.rest.is_told else 0

    def stop(self) -> None:
        super().stop()
        self._enough.set()
        self.waker.wake()


def _halves(items: list[F]) -> list[list[F]]:
    if len(items) == 1:
        return [items]
    middle = len(items) // 2
    return [items[:middle], items[middle:]]
