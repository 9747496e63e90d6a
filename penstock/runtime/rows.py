"""All reconcilers of a worker: each with its pump and its crew, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from penstock.database.ears import DeafEar, ear_for
from penstock.database.engine import Database
from penstock.database.links import Link
from penstock.doors import Doors
from penstock.queue.wakeups import Wakeups
from penstock.reconcile.definition import Reconciler
from penstock.reconcile.ending import Ended, Kind
from penstock.reconcile.hints import ROWS, concerns
from penstock.reconcile.source import RowSource
from penstock.runtime.row_crew import RowCrew
from penstock.runtime.row_pump import FIRST_DELAY, LONGEST_DELAY, LeaseKeeper, RowEar, RowPump, Sweeper
from penstock.runtime.service import Service
from penstock.runtime.waker import Waker
from penstock.settings import Settings
from penstock.telemetry.events import Stream


class RowHost(Protocol):
    """What reconcilers need of the app."""

    settings: Settings
    database: Database
    events: Stream
    wakeups: Wakeups
    doors: Doors
    reconcilers: dict[str, Reconciler]


class Runner:
    """One reconciler at work: source, crew and pump."""

    def __init__(self, host: RowHost, reconciler: Reconciler) -> None:
        self.reconciler = reconciler
        self.crew = RowCrew(reconciler, self._finished, host.events)
        self.source = RowSource(
            host.database, reconciler, host.wakeups, host.events, self.crew.lose, self._refused
        )
        self.waker = Waker(DeafEar())
        self.pump = RowPump(
            host.database,
            self.source,
            self.crew.room,
            self.crew.hand_over,
            self.waker,
            host.events,
            host.settings.batch,
            (FIRST_DELAY, LONGEST_DELAY),
        )
        self.pump.rows = self.source
        # Given back between turns, so that a dozen idle reconcilers do not keep a dozen connections.
        self.pump.link = Link(host.database, brief=True)

    def _finished(self, end: Ended) -> None:
        self.pump.finished(end)

    def _refused(self, end: Ended) -> None:
        if end.kind is not Kind.RELEASED:
            self.crew.regret(end.item, end)

    def hear(self, subject: str) -> None:
        if concerns(subject, self.reconciler.target.name, self.reconciler.name):
            self.waker.wake(subject)

    @property
    def at_rest(self) -> bool:
        return not (self.pump.unsettled or self.pump.in_doubt or self.source.holdings.count)

    def give_back(self) -> None:
        """After the pump's last turn: what that still brought goes back now, not when its lease is over."""
        if not self.at_rest:
            self.pump.turn()


class RowWork:
    """Everything about rows in one process."""

    def __init__(self, host: RowHost, process: Callable[[], str], only: Sequence[str] | None = None) -> None:
        self.host = host
        self.process = process
        self.only = only
        self.runners: dict[str, Runner] = {}
        self.shared: list[Service] = []
        self._deafen: Callable[[], None] = lambda: None
        self._leaving = False

    def start(self) -> None:
        """Start what is declared now; `notice_new` starts what is declared later."""
        self._deafen = self.host.wakeups.listen(self._hear)
        self.notice_new()

    def notice_new(self) -> None:
        if self._leaving:
            return
        for name, reconciler in self._wanted().items():
            if name not in self.runners:
                self._share()
                runner = self.runners[name] = Runner(self.host, reconciler)
                runner.pump.start()

    def _wanted(self) -> Mapping[str, Reconciler]:
        known = dict(self.host.reconcilers)
        return known if self.only is None else {name: known[name] for name in self.only if name in known}

    def _share(self) -> None:
        if self.shared:
            return
        host = self.host
        sources = lambda: [runner.source for runner in list(self.runners.values())]  # noqa: E731
        self.shared = [LeaseKeeper(host.database, host.events, sources, self.process)]
        self.shared.append(Sweeper(host.database, host.events, lambda: list(self._wanted().values())))
        ear = ear_for(host.database, host.wakeups.channel_of(ROWS))
        if not isinstance(ear, DeafEar):
            self.shared.append(RowEar(ear, host.wakeups, host.events))
        for service in self.shared:
            service.start()

    def _hear(self, subject: str) -> None:
        if subject.startswith(ROWS):
            for runner in list(self.runners.values()):
                runner.hear(subject)

    @property
    def holds(self) -> bool:
        """Rows are held here."""
        return any(runner.source.holdings.count for runner in self.runners.copy().values())

    @property
    def services(self) -> list[Service]:
        return [*self.shared, *(runner.pump for runner in self.runners.values())]

    def revive(self) -> None:
        """A thread that died is started again."""
        self.notice_new()
        for runner in self.runners.values():
            runner.crew.shed()
        for service in self.services:
            if not service.alive and not service.stopping.is_set():
                service.start()

    async def stop(self, timeout: float, hurried: Callable[[], bool] = lambda: False) -> None:
        """Give back at once what has not begun, let the rest finish in time, give that back too."""
        self._leaving = True
        runners = list(self.runners.values())
        for runner in runners:
            runner.pump.claiming = False
            runner.waker.wake()
        await _until(lambda: all(runner.crew.accepted == 0 for runner in runners), 5)
        for runner in runners:
            runner.crew.give_back_waiting()
        await _until(lambda: all(runner.crew.busy == 0 for runner in runners) or hurried(), timeout)
        for runner in runners:
            runner.crew.give_back_running()
        await _until(lambda: all(runner.crew.busy == 0 for runner in runners), 2)
        for runner in runners:
            runner.crew.give_up_running()
        await _until(lambda: all(runner.at_rest for runner in runners), 5)
        await self._close(runners)

    async def _close(self, runners: Sequence[Runner]) -> None:
        self._deafen()
        services = self.services
        for service in services:
            service.stop()
        for service in services:
            await self.host.doors.run(service.join, 10)
        for runner in runners:
            with suppress(Exception):
                await self.host.doors.run(runner.give_back)
            runner.crew.close()
            runner.waker.close()
            runner.pump.link.close()
        for service in self.shared:
            if isinstance(service, LeaseKeeper):
                with suppress(Exception):
                    await self.host.doors.run(service.tell)
                service.link.close()


async def _until(done: Callable[[], bool], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not done() and loop.time() < deadline:  # noqa: ASYNC110 - what is waited for happens in other threads
        await asyncio.sleep(0.005)
