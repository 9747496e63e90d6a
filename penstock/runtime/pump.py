"""The pump: one loop, one connection, one transaction a turn.

A turn settles what is finished, advances what that unblocks, claims what there is room for, and hands the new claims
on in one hop. Nothing is delayed to make a batch: while one transaction is under way, the next batch collects by
itself. Outcomes leave the outbox only when their transaction is committed.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from typing import Generic, TypeVar

from penstock.database.engine import Database
from penstock.database.links import Link
from penstock.database.transaction import Transaction
from penstock.runtime.rest import Rest
from penstock.runtime.service import Service, Turn
from penstock.runtime.source import Source
from penstock.runtime.waker import Waker
from penstock.telemetry import points
from penstock.telemetry.events import Stream

C = TypeVar("C")
F = TypeVar("F")

CAUTIOUS = 20
"""So many turns nothing is presumed after something was presumed wrongly."""
SET_ASIDE = 30.0
"""Seconds until an outcome that was refused in every form is tried again: perhaps the fault is not its own."""
MOST_COLLISIONS = 5
"""So many races may be lost in a row before that counts as trouble."""


class Pump(Service, Generic[C, F]):
    """Moves work from a source to executors, and outcomes back."""

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
        self.room = room
        self.hand_over = hand_over
        self.waker = waker
        self.batch = batch
        self.shortest_pause, self.longest_pause = poll
        self.claiming = True
        self.rest = Rest()
        self.link = Link(database, dedicated=source.own_tables)
        self._outbox: deque[F] = deque()
        self._refused: deque[tuple[float, F]] = deque()
        self._empty_turns = 0
        self._doubtful = False
        self._found = 0
        """How many were claimed in this turn; not all of them need be something to run."""
        self._met = False
        """Something was claimed in this turn, although it need not be something to run."""
        self._satisfied = False
        """The last turn has left nothing that it could have taken."""
        self._asked_at = 0.0
        self._nothing_waits = False
        """The last look found less than there was room for, and nobody has told of more."""
        self._just_heard = False
        """Nothing has happened since the last wait ended: another look at the ear would tell nothing."""
        self._collisions = self._cautious = 0
        self._one_at_a_time = threading.Lock()

    def finished(self, work: F) -> None:
        """An outcome: it will be settled in the next turn."""
        self._outbox.append(work)
        self.waker.wake()

    @property
    def unsettled(self) -> int:
        return len(self._outbox)

    @property
    def in_doubt(self) -> bool:
        """An answer was lost: we may hold something without knowing it."""
        return self._doubtful

    def doubt(self) -> None:
        """Something may be held of which nobody here knows: see to that before anything else."""
        self._doubtful = True
        self.waker.wake()

    def turn(self) -> Turn:
        with self._one_at_a_time:
            turn = self._turn()
            self._collisions = 0
            return turn

    def _trouble(self, error: Exception) -> None:
        """A deadlock or the like is a race lost, no trouble: go again at once, unless that does not help."""
        self._collisions += 1
        if self._collisions > MOST_COLLISIONS or not self.database.dialect.is_transient(error):
            super()._trouble(error)

    def _turn(self) -> Turn:
        if self._doubtful:
            self._transact(self.source.recover)
            self._doubtful = False
        while self._refused and self._refused[0][0] <= time.monotonic():
            self._outbox.append(self._refused.popleft()[1])
        finished = [self._outbox.popleft() for _ in range(min(len(self._outbox), self.batch))]
        limit = min(self.room(), self.batch) if self.claiming and not self.stopping.is_set() else 0
        just_heard, self._just_heard = self._just_heard, False
        if finished and self._nothing_waits and self.source.leads_on and not just_heard:
            self._hear(self.waker.wait(0))
        if not finished and limit <= 0:
            return Turn.IDLE
        try:
            if not finished and self.source.one_statement:
                claims = self._claim_alone(limit)
            else:
                claims = self._settle(finished, limit)
        except Exception as error:
            self._put_back(finished, error)
            if not finished or self._is_outage(error):
                raise
            return Turn.WORKED
        if points.watched:
            points.reach("hand_over")
        if claims:
            self._empty_turns = 0
            self.hand_over(claims)
        elif not finished and not self._met:
            self._empty_turns += 1
        self._satisfied = self._found < limit or limit <= 0
        if finished or self._met:
            self.rest.stir()
            return Turn.WORKED
        return Turn.IDLE

    def run(self) -> None:
        """After a turn that found less than there was room for, another look right away would find nothing."""
        while not self.stopping.is_set():
            self._satisfied = False
            turn = self.guarded_turn()
            rests = turn is Turn.IDLE or (turn is Turn.WORKED and self._satisfied)
            if rests and not self.stopping.is_set():
                self.pause()

    def _settle(self, finished: Sequence[F], limit: int) -> list[C]:
        """First in the belief that nothing has come in between; if that is wrong, once more without it."""
        if self._cautious > 0:
            self._cautious -= 1
        elif finished:
            try:
                return self._transact(self._settle_and_claim, finished, limit, presuming=True)
            except Exception as error:
                if not self.database.dialect.is_presumption(error):
                    raise
                self._cautious = CAUTIOUS
        return self._transact(self._settle_and_claim, finished, limit)

    def _settle_and_claim(self, tx: Transaction, finished: Sequence[F], limit: int) -> list[C]:
        """Right after a look that found nothing more, what the settle makes ready is held without another."""
        just_now = time.monotonic() - self._asked_at < self.shortest_pause
        knows = self.source.leads_on and self._nothing_waits and just_now
        claims = self.source.settle(tx, finished, limit if knows else 0) if finished else []
        if knows or limit <= 0:
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
        """The short way for an idle worker: one journey to the database, or as few as reading takes."""
        held: list[C] = []
        read = self._transact(self._look_and_read, limit, held, single=True)
        if read or not held:
            return read
        try:
            return self._transact(self.source.complete, held)
        except BaseException:
            self.source.forget(held)
            raise

    def _look_and_read(self, tx: Transaction, limit: int, held: list[C]) -> list[C]:
        """What is `held` is committed once it is answered; if reading fails after that, `recover` gives it back."""
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
                tx.presumes = presuming and self.source.own_tables and self.database.dialect.fuses
                result = work(tx, *args)
        except BaseException:
            self.source.rolled_back()
            raise
        self.source.committed()
        return result or []

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
                    self._refused.append((time.monotonic() + SET_ASIDE, half[0]))

    def _is_outage(self, error: Exception) -> bool:
        return self.database.is_outage(error, own_tables=self.source.own_tables)

    def pause(self) -> None:
        if self._outbox:
            return
        pause = min(self.shortest_pause * 1.5 ** min(self._empty_turns, 30), self.longest_pause)
        self._hear(self.waker.wait(pause))
        while self.rest.is_on and not (self._outbox or self._doubtful or self.stopping.is_set()):
            self._hear(self.waker.wait(self.longest_pause))
        self._just_heard = True

    def _hear(self, subjects: Set[str]) -> None:
        if subjects:
            self._empty_turns = 0
            self._nothing_waits = False
            if self.source.heard(subjects):
                self.rest.stir()

    def stop(self) -> None:
        super().stop()
        self.waker.wake()


def _halves(items: list[F]) -> list[list[F]]:
    if len(items) == 1:
        return [items]
    middle = len(items) // 2
    return [items[:middle], items[middle:]]
