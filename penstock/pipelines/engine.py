"""The pipelines of one app at work: what a settle calls, what a claim calls, and what is looked after between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from penstock.database import foreign
from penstock.database.engine import Database
from penstock.database.transaction import Transaction
from penstock.doors import Doors
from penstock.errors import ConfigurationError
from penstock.lazy import Lazy
from penstock.pipelines.chores import Chores
from penstock.pipelines.desk import Desk
from penstock.pipelines.desk import Host as DeskHost
from penstock.queue.jobs import Claim, Ended, Follow, NewJob, Offer
from penstock.queue.wakeups import CHORES, READY, ready

if TYPE_CHECKING:
    from sqlalchemy import util as greenlets

    from penstock.pipelines import closing, hydrate, runs, trigger
    from penstock.pipelines.trigger import NewRun
else:
    greenlets, trigger = Lazy("sqlalchemy.util"), Lazy("penstock.pipelines.trigger")
    closing, hydrate = Lazy("penstock.pipelines.closing"), Lazy("penstock.pipelines.hydrate")
    runs = Lazy("penstock.pipelines.runs")

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

    def hydrate(self, tx: Transaction, claims: list[Claim], by_reading: bool = False) -> list[Claim]:
        """Claims with their arguments; without those that are not to start."""
        return hydrate.hydrate(self.desk, tx, claims, by_reading)

    def foresee(self, tx: Transaction, token: int) -> None:
        """Ask for what will have to be known of the runs of a claim."""
        runs.foresee(self.desk, tx, token)

    def work_off(self, most: int = 1000) -> None:
        """Do what is due for runs now, instead of leaving it to the workers."""
        for _ in range(most):
            if not self.chores.take_timer():
                break
        if self.host.inline is not None:
            self.host.inline([])

    def trigger(self, new: NewRun, connection: object | None) -> str:
        """Write a run, in a transaction of our own or in the caller's; its id."""
        return self.trigger_many([new], connection)[0]

    def trigger_many(self, news: Sequence[NewRun], connection: object | None) -> list[str]:
        """Write runs of one pipeline, all or none; their ids."""
        if connection is not None:
            theirs = foreign.recognize(connection)
            if theirs.is_async:
                raise ConfigurationError("this connection is an async one: use trigger_async")
            return self._within(theirs, news)
        self.host.prepare()
        try:
            ids = self.host.database.in_transaction(self._trigger, news)
        except Exception as error:
            # An earlier try was committed, only its answer was lost: the runs are there.
            duplicate = self.host.database.dialect.is_duplicate(error)
            known = self.host.database.in_transaction(trigger.written, news) if duplicate else None
            if known is None:
                raise
            ids = known
            self.host.wakeups.tell_after_all([READY, CHORES])
        if self.host.inline is not None:
            self.host.inline([])
        return ids

    async def trigger_async(self, new: NewRun, connection: object | None) -> str:
        """`trigger` for async callers."""
        return (await self.trigger_many_async([new], connection))[0]

    async def trigger_many_async(self, news: Sequence[NewRun], connection: object | None) -> list[str]:
        """`trigger_many` for async callers."""
        if connection is None:
            door = self.host.doors.run if self.host.inline is None else self.host.doors.run_apart
            return await door(self.trigger_many, news, None)
        theirs = foreign.recognize(connection)
        if theirs.is_async:
            return await greenlets.greenlet_spawn(self._within, theirs, news)
        return self._within(theirs, news)

    def _trigger(self, tx: Transaction, news: Sequence[NewRun]) -> list[str]:
        ids = self._written(tx, news)
        self.desk.tell_ready_with(tx)
        return ids

    def _written(self, tx: Transaction, news: Sequence[NewRun]) -> list[str]:
        if len(news) == 1:
            return [trigger.trigger(self.desk, tx, news[0])]
        return trigger.trigger_many(self.desk, tx, news)

    def _within(self, theirs: foreign.Foreign, news: Sequence[NewRun]) -> list[str]:
        tx = self.host.within(theirs)
        with theirs.kept_together():
            ids = self._written(tx, news)
            for queue, tier in sorted(set(self.desk.trace(tx).made.values())):
                self.host.wakeups.tell_within(tx, ready(queue, tier))
            if tx.leaves_chores:
                self.host.wakeups.call_housekeeping_within(tx)
        return ids
