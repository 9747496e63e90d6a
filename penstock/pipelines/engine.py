"""The engine of one app's pipelines: the functions that a settle, a claim, a trigger and the housekeeping call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from penstock.app_services import AppServices
from penstock.database.transaction import Transaction
from penstock.database.user import connections
from penstock.errors import ConfigurationError
from penstock.pipelines.advance import finish, run_rows
from penstock.pipelines.advance.run_headers import RunHeaders
from penstock.pipelines.advance.run_modes import SettledRuns
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.lifecycle import claimed_steps, lineage, signals, start
from penstock.pipelines.lifecycle.start import NewRun
from penstock.pipelines.maintenance.chores import Chores
from penstock.queue.jobs import Claim, EndedStep, Offer
from penstock.queue.wakeups import CHORES, READY, ready
from penstock.telemetry.events import RunsTriggered
from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    from sqlalchemy import util as greenlets
else:
    greenlets = Lazy("sqlalchemy.util")

R = TypeVar("R")


class Features:
    """The features of runs that a plan needs (`state.RunFeatures`): `advance/` imports nothing of `lifecycle/`."""

    keeps_failure = staticmethod(lineage.keeps_failure)
    start_waiting = staticmethod(signals.start_waiting)


class Engine:
    """Pipelines in storage."""

    def __init__(self, host: AppServices) -> None:
        self.host = host
        self.engine_state = EngineState(host, Features())
        self.chores = Chores(self.engine_state, host)
        self.run_lookup = SettledRuns()
        self.run_headers = RunHeaders(host.database)

    def follow(self, tx: Transaction, ended: Sequence[EndedStep], offer: Offer | None = None) -> None:
        """Advance the runs of ended steps, in the transaction that ended them."""
        finish.follow(self.engine_state, tx, ended, offer)

    def prepare_claimed_steps(
        self, tx: Transaction, claims: list[Claim], by_reading: bool = False
    ) -> list[Claim]:
        """Returns the claims with their arguments, without steps that may not start."""
        return claimed_steps.prepare_claimed_steps(self.engine_state, tx, claims, by_reading)

    def prefetch_runs(self, tx: Transaction, token: int) -> None:
        """Query the runs of a claim's steps, before their rows are needed."""
        run_rows.prefetch_runs(self.engine_state, tx, token)

    def work_off(self, most: int = 1000) -> None:
        """Do the chores of runs that are due now, instead of leaving them to the workers."""
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
        connection = self.host.connection_for(connection)
        if connection is not None:
            theirs = connections.recognize(connection)
            if theirs.is_async:
                raise ConfigurationError("this connection is an async one: use trigger_async")
            return self._within(theirs, news)
        self.host.prepare()
        try:
            ids = self.host.database.in_transaction(self._trigger, news)
        except Exception as error:
            # An earlier try was committed, only its answer was lost: the runs are there.
            duplicate = self.host.database.dialect.is_duplicate(error)
            known = self.host.database.in_transaction(start.written, news) if duplicate else None
            if known is None:
                raise
            ids = known
            self.host.wakeups.notify_after_lost_commit([READY, CHORES])
        self._count(news, ids)
        if self.host.inline is not None:
            self.host.inline([])
        return ids

    async def trigger_async(self, new: NewRun, connection: object | None) -> str:
        """`trigger` for async callers."""
        return (await self.trigger_many_async([new], connection))[0]

    async def trigger_many_async(self, news: Sequence[NewRun], connection: object | None) -> list[str]:
        """`trigger_many` for async callers."""
        if connection is None:
            door = self.host.bridge.run if self.host.inline is None else self.host.bridge.run_apart
            return await door(self.trigger_many, news, None)
        theirs = connections.recognize(connection)
        if theirs.is_async:
            return await greenlets.greenlet_spawn(self._within, theirs, news)
        return self._within(theirs, news)

    def _trigger(self, tx: Transaction, news: Sequence[NewRun]) -> list[str]:
        ids = self._written(tx, news)
        self.engine_state.tell_ready_with(tx)
        return ids

    def _written(self, tx: Transaction, news: Sequence[NewRun]) -> list[str]:
        if len(news) == 1:
            return [start.trigger(self.engine_state, tx, news[0])]
        return start.trigger_many(self.engine_state, tx, news)

    def _within(self, theirs: connections.CallerConnection, news: Sequence[NewRun]) -> list[str]:
        tx = self.host.within(theirs)
        with theirs.kept_together():
            ids = self._written(tx, news)
            for queue, tier in sorted(set(self.engine_state.trace(tx).made.values())):
                self.host.wakeups.notify_in_user_transaction(tx, ready(queue, tier))
            if tx.leaves_chores:
                self.host.wakeups.call_housekeeping_within(tx)
        self._count(news, ids)
        return ids

    def _count(self, news: Sequence[NewRun], ids: Sequence[str]) -> None:
        """Count the runs that are new; a run with a key may have existed."""
        if self.host.events.wants(RunsTriggered):
            fresh = sum(new.id == id for new, id in zip(news, ids, strict=True))
            if fresh:
                self.host.events.emit(RunsTriggered(news[0].definition.name, fresh))
