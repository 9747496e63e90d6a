"""The pipelines of one app at work: what a settle calls, what a claim calls, and what is looked after between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from sqlalchemy.util import greenlet_spawn

from penstock.database import foreign
from penstock.database.engine import Database
from penstock.database.transaction import Transaction
from penstock.doors import Doors
from penstock.errors import ConfigurationError
from penstock.pipelines import closing, hydrate, trigger
from penstock.pipelines.chores import Chores
from penstock.pipelines.desk import Desk
from penstock.pipelines.desk import Host as DeskHost
from penstock.pipelines.trigger import NewRun
from penstock.queue.jobs import Claim, Ended, Follow, NewJob, Offer
from penstock.queue.wakeups import ready

R = TypeVar("R")


class Host(DeskHost, Protocol):
    """An app, seen from its pipelines."""

    @property
    def database(self) -> Database: ...

    @property
    def doors(self) -> Doors: ...

    @property
    def inline(self) -> Callable[[Sequence[NewJob]], None] | None: ...

    @property
    def follow(self) -> Follow: ...

    def prepare(self) -> None: ...

    def within(self, theirs: foreign.Foreign) -> Transaction: ...

    def listen_for_results(self) -> None: ...

    def find_pipeline(self, name: str) -> Any: ...


class Engine:
    """Pipelines in storage."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.desk = Desk(host)
        self.chores = Chores(self.desk, host)

    def follow(self, tx: Transaction, ended: Sequence[Ended], offer: Offer | None = None) -> None:
        """What follows from ended steps, in the transaction that ended them."""
        closing.follow(self.desk, tx, ended, offer)

    def hydrate(self, tx: Transaction, claims: list[Claim]) -> list[Claim]:
        """Claims with their arguments; without those that are not to start."""
        return hydrate.hydrate(self.desk, tx, claims)

    def work_off(self, most: int = 1000) -> None:
        """Do what is due for runs now, instead of leaving it to the workers."""
        for _ in range(most):
            if not self.host.database.in_transaction(self.chores.timer):
                break
        if self.host.inline is not None:
            self.host.inline([])

    def trigger(self, new: NewRun, connection: object | None) -> str:
        """Write a run, in a transaction of our own or in the caller's; its id."""
        if connection is not None:
            theirs = foreign.recognize(connection)
            if theirs.is_async:
                raise ConfigurationError("this connection is an async one: use trigger_async")
            return self._within(theirs, new)
        self.host.prepare()
        try:
            id = self.host.database.in_transaction(self._trigger, new)
        except Exception as error:
            # An earlier try was committed, only its answer was lost: the run is there.
            duplicate = self.host.database.dialect.is_duplicate(error)
            if not duplicate or not self.host.database.read(trigger.is_written, new.id):
                raise
            id = new.id
        if self.host.inline is not None:
            self.host.inline([])
        return id

    async def trigger_async(self, new: NewRun, connection: object | None) -> str:
        """`trigger` for async callers."""
        if connection is None:
            door = self.host.doors.run if self.host.inline is None else self.host.doors.run_apart
            return await door(self.trigger, new, None)
        theirs = foreign.recognize(connection)
        if theirs.is_async:
            return await greenlet_spawn(self._within, theirs, new)
        return self._within(theirs, new)

    def _trigger(self, tx: Transaction, new: NewRun) -> str:
        id = trigger.trigger(self.desk, tx, new)
        self.desk.tell_ready_with(tx)
        return id

    def _within(self, theirs: foreign.Foreign, new: NewRun) -> str:
        tx = self.host.within(theirs)
        with theirs.kept_together():
            id = trigger.trigger(self.desk, tx, new)
            for queue, tier in sorted(set(self.desk.trace(tx).made.values())):
                self.host.wakeups.tell_within(tx, ready(queue, tier))
        return id
