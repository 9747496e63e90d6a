"""Taking back the work of the dead, with a boundary around each receipt and each job.

A receipt that cannot be read, and a job that cannot be taken back, is set aside by itself; all others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.database.boundary import Boundary
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.queue import reclaim
from penstock.queue.jobs import Follow
from penstock.queue.reclaim import Crashed, UnreadableReceipt
from penstock.telemetry.events import Stream

Transact = Callable[[Callable[[Transaction], list[Crashed]]], list[Crashed]]
"""Runs a piece of work in a transaction."""


class Reclaimer:
    """Remembers what could not be taken back."""

    def __init__(self, database: Database, stream: Stream, follow: Follow, transact: Transact) -> None:
        self.follow = follow
        self.database = database
        self.transact = transact
        self.receipts: Boundary[int] = Boundary(database, stream, "the receipt of claim")
        self.jobs: Boundary[str] = Boundary(database, stream, "the lost job")
        self._claims: dict[int, list[str]] = {}
        """The jobs of claims of which some could not be taken back."""

    @property
    def left(self) -> list[int]:
        """The claims that are left out for now: their receipts cannot be read, or a job of theirs is set aside."""
        jobs = set(self.jobs.left)
        self._claims = {token: held for token, held in self._claims.items() if not jobs.isdisjoint(held)}
        return [*self.receipts.left, *self._claims]

    @property
    def next_due(self) -> float | None:
        """Seconds until something that was set aside is tried again."""
        due = [after for after in (self.receipts.next_due, self.jobs.next_due) if after is not None]
        return min(due, default=None)

    def lapse(self) -> None:
        """All that has no holder was looked at: what was not met, although its time has come, is gone."""
        self.receipts.lapse()
        self.jobs.lapse()

    def turn(self) -> list[Crashed]:
        """A batch of what has no holder any more."""
        try:
            crashed = self._take_back(None)
        except Exception as error:
            return self._apart(error)
        self.jobs.handled([job.job_id for job in crashed])
        return crashed

    def _take_back(self, only: Sequence[str] | None) -> list[Crashed]:
        left, passed_over = self.left, self.jobs.left
        unreadable: list[int] = []

        def work(tx: Transaction) -> list[Crashed]:
            unreadable.clear()
            return reclaim.reclaim(tx, self.follow, left, passed_over, only, unreadable)

        crashed = self.transact(work)
        for token in unreadable:
            self.receipts.set_aside(token, UnreadableReceipt("what it says of its jobs cannot be read"))
        return crashed

    def _apart(self, error: Exception) -> list[Crashed]:
        """Job by job, where they fail together."""
        if self.database.is_passing(error):
            raise error
        found = self.database.read(reclaim.orphans, self.left)
        passed_over = set(self.jobs.left)
        ids = sorted({id for jobs in found.values() for id in jobs} - passed_over)
        done = self.jobs.handle_apart(ids, self._take_back, error)
        # A claim of which nothing else is left must not take the place of others.
        self._claims |= {token: jobs for token, jobs in found.items() if not passed_over.issuperset(jobs)}
        return [job for some in done for job in some]
