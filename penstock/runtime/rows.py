"""All reconcilers of a worker: each with its pump and its crew, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from penstock.database.ears import DeafEar, ear_for
from penstock.database.engine import Database
from penstock.lazy import Lazy
from penstock.queue.wakeups import Wakeups
from penstock.reconcile.hints import ROWS
from penstock.runtime.service import Service
from penstock.settings import Settings
from penstock.telemetry.events import Stream

if TYPE_CHECKING:
    from penstock.reconcile.definition import Reconciler
    from penstock.reconcile.source import RowSource
    from penstock.runtime import row_services
    from penstock.runtime import runner as running
    from penstock.runtime.runner import Runner
else:
    row_services, running = Lazy("penstock.runtime.row_services"), Lazy("penstock.runtime.runner")


class RowHost(Protocol):
    """What reconcilers need of the app."""

    settings: Settings
    database: Database
    events: Stream
    wakeups: Wakeups
    reconcilers: dict[str, Reconciler]


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
                self.runners[name] = running.Runner(self.host, reconciler)
                self.runners[name].pump.start()

    def _wanted(self) -> Mapping[str, Reconciler]:
        known = dict(self.host.reconcilers)
        return known if self.only is None else {name: known[name] for name in self.only if name in known}

    def _share(self) -> None:
        if self.shared:
            return
        host = self.host
        self.shared = [
            row_services.LeaseKeeper(host.database, host.events, self._sources, self.process),
            row_services.Sweeper(host.database, host.events, lambda: list(self._wanted().values())),
        ]
        ear = ear_for(host.database, host.wakeups.channel_of(ROWS))
        if not isinstance(ear, DeafEar):
            self.shared.append(row_services.RowEar(ear, host.wakeups, host.events))
        for service in self.shared:
            service.start()

    def _sources(self) -> list[RowSource]:
        return [runner.source for runner in list(self.runners.values())]

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

    @property
    def busy(self) -> int:
        return sum(runner.crew.busy for runner in self.runners.values())

    @property
    def at_rest(self) -> bool:
        return all(runner.at_rest for runner in self.runners.values())

    # the end, in this order

    def give_back_waiting(self) -> None:
        """Nothing is claimed any more, and what has not begun goes back at once."""
        self._leaving = True
        for runner in self.runners.values():
            runner.pump.claiming = False
            runner.waker.wake()
            runner.crew.give_back_waiting()

    def give_back_running(self) -> None:
        for runner in self.runners.values():
            runner.crew.give_back_running()

    def give_up_running(self) -> None:
        for runner in self.runners.values():
            runner.crew.give_up_running()

    def close(self) -> None:
        """End the threads, and give back what their last turns have brought."""
        self._deafen()
        services = self.services
        for service in services:
            service.stop()
        for service in services:
            service.join(10)
        for runner in self.runners.values():
            with suppress(Exception):
                runner.give_back()
            runner.crew.close()
            runner.waker.close()
            runner.pump.link.close()
        for service in self.shared:
            if isinstance(service, row_services.LeaseKeeper):
                with suppress(Exception):
                    service.tell()
                service.link.close()
