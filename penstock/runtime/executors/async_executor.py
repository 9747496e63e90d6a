"""`async def` handlers: tasks on the worker's event loop."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.handler_environment import HandlerEnvironment
from penstock.runtime.executors import event_for
from penstock.runtime.executors.work import Interruption, Key, Work
from penstock.telemetry.events import HandlerOverdue, Stream
from penstock.telemetry.fault_points import SimulatedCrash
from penstock.values.outcome import TimedOut, raised

CLEANING_UP = 5.0
"""Seconds that a cancelled handler may take to end; then its claim is settled without it."""


class LoopExecutor:
    """Runs coroutines; can cancel them, unless they ignore the cancellation."""

    def __init__(self, around: HandlerEnvironment, stream: Stream) -> None:
        self.around = around
        self.stream = stream
        self.loop = asyncio.get_running_loop()
        self._overtime: dict[Key, asyncio.TimerHandle] = {}

    def start(self, work: Work) -> None:
        work.handle = self.loop.create_task(self._run(work))
        if work.timeout is not None:
            seconds = work.timeout + CLEANING_UP
            self._overtime[work.key] = self.loop.call_later(seconds, self._overdue, work)

    async def _run(self, work: Work) -> None:
        try:
            event = await work.run_on_loop(self.around)
        except SimulatedCrash:
            raise
        except BaseException as error:
            event = raised(error)  # whatever that was, its place is free and its claim gets an end
        self._ended(work, event)

    def _ended(self, work: Work, event: Any) -> None:
        work.handle = None
        if self._overtime and (overtime := self._overtime.pop(work.key, None)) is not None:
            overtime.cancel()
        if work.end_once():
            work.owner.done(work, event)
        else:
            work.owner.vacate(work)

    def _overdue(self, work: Work) -> None:
        """The handler was cancelled but still runs: settle its claim now; its place stays taken until it ends."""
        if work.end_once():
            self.stream.emit(HandlerOverdue(work.id, work.name, work.timeout or 0.0))
            work.owner.done_elsewhere(work, TimedOut(work.timeout or 0.0))

    def interrupt(self, work: Work, why: Interruption) -> None:
        work.interrupted = why
        if work.handle is None:
            return
        work.handle.cancel()
        if not work.started:
            # A task that is cancelled before its first step never takes it.
            self._ended(work, event_for(why))

    def has(self, work: Work) -> bool:
        return work.handle is not None and not work.handle.done()

    def close(self) -> None:
        """Tasks end with their loop."""
