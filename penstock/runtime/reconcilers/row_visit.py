"""A claim of a row as work for executors: calls the reconciler's handler, and decides the outcome for the row.

Any exception of user code is an error of the row: a visit always has an outcome.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from penstock.handler_environment import HandlerEnvironment, HandlerFlags
from penstock.reconcile import outcome as ends
from penstock.reconcile.item import Item
from penstock.reconcile.outcome import (
    VisitKind,
    VisitOutcome,
    beforehand,
    died,
    errored,
    failed,
    released,
    returned,
)
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.table import key_text
from penstock.reconcile.transfer import unpack_answer
from penstock.runtime.executors.call import end_copy
from penstock.runtime.executors.work import Died, Interruption, Work
from penstock.runtime.reconcilers.row_order import RowAnswer, RowOrder
from penstock.telemetry.fault_points import SimulatedCrash
from penstock.values.failure import Failure
from penstock.values.outcome import Raised, TimedOut
from penstock.values.typed_json.annotations import waited_for


@dataclass(slots=True, eq=False)
class RowVisit(Work):
    """One visit of a row. Its key is the item."""

    item: Item
    reconciler: Reconciler
    visited: bool = False
    """True if the handler was called: if the row is lost, there may be something to undo."""

    only_seen: ClassVar[Interruption] = Interruption.LOST

    @classmethod
    def of(cls, item: Item, reconciler: Reconciler) -> RowVisit:
        timeout = reconciler.policy.timeout_seconds
        return cls(item, timeout, reconciler.executor, HandlerFlags(), item, reconciler)

    @property
    def id(self) -> str:
        return key_text(self.item.claim.key)

    @property
    def name(self) -> str:
        return self.reconciler.name

    def run_here(self, around: HandlerEnvironment) -> VisitOutcome | None:
        item, us = self.item, os.getpid()
        if not self._begins():
            return None
        try:
            value = self.reconciler.visit(item)
            if inspect.isawaitable(value):
                value = asyncio.run(waited_for(value))
            return returned(self.reconciler.policy, item, value)
        except SimulatedCrash:
            raise
        except BaseException as error:
            return self._guarded(partial(self._raised, error))
        finally:
            end_copy(us, self.name)

    async def run_on_loop(self, around: HandlerEnvironment) -> VisitOutcome | None:
        item, us = self.item, os.getpid()
        if not self._begins():
            return None
        limit = asyncio.timeout(self.timeout)
        try:
            value = self.reconciler.visit(item)
            if not inspect.isawaitable(value):
                pass  # wrapped in something that is not async
            elif self.timeout is None:
                value = await value
            else:
                async with limit:
                    value = await value
            return returned(self.reconciler.policy, item, value)
        except SimulatedCrash:
            raise
        except BaseException as error:
            return self._guarded(partial(self._broken_off, limit, error))
        finally:
            end_copy(us, self.name)

    def _begins(self) -> bool:
        """False: the row was lost before its handler began."""
        if self.item.lease_lost:
            return False
        self.item.began = self.began = time.monotonic()
        self.started = self.visited = True
        return True

    def _broken_off(self, limit: asyncio.Timeout, error: BaseException) -> VisitOutcome | None:
        """The outcome of a handler that was stopped; an exception that it raises meanwhile is no error of the row."""
        match self.interrupted:
            case Interruption.LOST:
                return None
            case Interruption.RELEASED:
                return released(self.item)
        if limit.expired():
            return self._timed_out()
        # Cancelled with the event loop, or by code inside the handler: only the latter is an error of the row.
        task = asyncio.current_task()
        # By the type: `isinstance` may run code of the error's class, which may raise.
        cancelled = issubclass(type(error), asyncio.CancelledError)
        outside = cancelled and task is not None and task.cancelling()
        return released(self.item) if outside else self._raised(error)

    def order(self, around: HandlerEnvironment) -> RowOrder:
        order = RowOrder.of(self.reconciler, self.item)
        self.visited = True
        return order

    # ends

    def outcome(self, event: Any) -> VisitOutcome:
        """The outcome for an event of the executor."""
        if isinstance(event, VisitOutcome):
            return event
        if self.started:
            self.item.began = self.began
        end = self._guarded(partial(self._judged, event))
        assert end is not None
        return end

    def _judged(self, event: Any) -> VisitOutcome:
        match event:
            case RowAnswer(packed):
                return self._answered(packed)
            case Died(message):
                return died(self.reconciler.policy, self.item, message)
            case Raised(failure):
                return self._failed(failure, VisitKind.ERRORED)
            case TimedOut():
                return self._timed_out()
            case _:
                return released(self.item)

    def _answered(self, packed: bytes) -> VisitOutcome:
        """The outcome for the answer of a handler process, as if the handler had run here."""
        try:
            value = unpack_answer(self.reconciler, self.item, packed)
            return returned(self.reconciler.policy, self.item, value)
        except Exception as error:
            return self._raised(error)

    def _guarded(self, judge: Callable[[], VisitOutcome | None]) -> VisitOutcome | None:
        """Decide the outcome; an exception of user code becomes an error of the row."""
        try:
            return judge()
        except SimulatedCrash:
            raise
        except BaseException as error:
            return errored(self.reconciler.policy, self.item, Failure.of(error))

    def _raised(self, error: BaseException) -> VisitOutcome:
        return self._failed(ends.raised(self.item, error), VisitKind.ERRORED)

    def _timed_out(self) -> VisitOutcome:
        said = f"no end after {self.timeout or 0.0:g} s (timeout)"
        return self._failed(Failure.note("TimedOut", said), VisitKind.TIMED_OUT)

    def _failed(self, failure: Failure, kind: VisitKind) -> VisitOutcome:
        return failed(self.reconciler.policy, self.item, failure, kind, random.random())


def visit_maker(
    reconciler: Reconciler, finished: Callable[[VisitOutcome], None]
) -> Callable[[Item], RowVisit | None]:
    """Make visits of items. An item that ends without its handler, for its crashes or its values, is finished here."""

    def make(item: Item) -> RowVisit | None:
        visit = RowVisit.of(item, reconciler)
        end = visit._guarded(lambda: beforehand(reconciler.policy, item, random.random()))
        if end is None:
            return visit
        finished(end)
        return None

    return make
