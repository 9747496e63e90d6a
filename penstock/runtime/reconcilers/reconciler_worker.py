"""All reconcilers of a worker: each with its pump and its dispatcher, and the services they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.app_services import AppServices
from penstock.database.listeners import NoListener, listener_for
from penstock.reconcile.wakeup_subjects import ROWS
from penstock.runtime.executors.executor_set import ExecutorSet
from penstock.runtime.service import Service
from penstock.values.lazy_import import Lazy

if TYPE_CHECKING:
    from penstock.reconcile.reconciler import Reconciler
    from penstock.runtime.reconcilers import row_services
    from penstock.runtime.reconcilers import runner as running
    from penstock.runtime.reconcilers.row_source import RowSource
    from penstock.runtime.reconcilers.runner import Runner
else:
    row_services, running = (
        Lazy("penstock.runtime.reconcilers.row_services"),
        Lazy("penstock.runtime.reconcilers.runner"),
    )


class RowWork:
    """Everything about rows in one process."""

    def __init__(
        self,
        host: AppServices,
        executors: ExecutorSet,
        process: Callable[[], str],
        only: Sequence[str] | None = None,
    ) -> None:
        self.host = host
        self.executors = executors
        self.process = process
        self.only = only
        self.runners: dict[str, Runner] = {}
        self.shared: list[Service] = []
        self._stop_listening: Callable[[], None] = lambda: None
        self._leaving = False

    def start_new(self) -> None:
        """Start the reconcilers that were declared since the last call; the first brings the services they share."""
        if self._leaving:
            return
        for name, reconciler in self._wanted().items():
            if name not in self.runners:
                self._share()
                self.runners[name] = running.Runner(self.host, reconciler, self.executors)
                self.runners[name].pump.start()

    def _wanted(self) -> Mapping[str, Reconciler]:
        known = dict(self.host.reconcilers)
        return known if self.only is None else {name: known[name] for name in self.only if name in known}

    def _share(self) -> None:
        if self.shared:
            return
        host = self.host
        self._stop_listening = host.wakeups.listen(self._hear)
        self.shared = [
            row_services.LeaseKeeper(host.database, host.events, self._sources, self.process),
            row_services.Sweeper(host.database, host.events, lambda: list(self._wanted().values())),
        ]
        listener = listener_for(host.database, host.wakeups.channel_of(ROWS))
        if not isinstance(listener, NoListener):
            self.shared.append(row_services.RowListener(listener, host.wakeups, host.events))
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
        """True if this process holds rows."""
        return any(runner.source.holdings.count for runner in self.runners.copy().values())

    @property
    def services(self) -> list[Service]:
        return [*self.shared, *(runner.pump for runner in self.runners.values())]

    def revive(self) -> None:
        """Start threads again that died."""
        self.start_new()
        for runner in self.runners.values():
            runner.dispatcher.give_back_surplus()
            runner.dispatcher.free_lost()
        for service in self.services:
            if not service.alive and not service.stopping.is_set():
                service.start()

    @property
    def busy(self) -> int:
        return sum(runner.dispatcher.busy for runner in self.runners.values())

    @property
    def at_rest(self) -> bool:
        return all(runner.at_rest for runner in self.runners.values())

    # the end, in this order

    def give_back_waiting(self) -> None:
        """Stop claiming, and give back rows whose handlers have not begun."""
        self._leaving = True
        for runner in self.runners.values():
            runner.pump.claiming = False
            runner.waker.wake()
            runner.dispatcher.give_back_waiting()

    def give_back_running(self) -> None:
        for runner in self.runners.values():
            runner.dispatcher.give_back_running()

    def give_up_running(self) -> None:
        for runner in self.runners.values():
            runner.dispatcher.give_up_running()

    def give_back_deserted(self) -> None:
        """Give back all rows from another thread, after the event loop was closed."""
        self._leaving = True
        for runner in self.runners.values():
            runner.pump.claiming = False
            runner.waker.wake()
            runner.dispatcher.give_back_deserted()

    def close(self) -> None:
        """End the threads, and give back the rows that their last turns claimed."""
        self._stop_listening()
        services = self.services
        for service in services:
            service.stop()
        for service in services:
            service.join(10)
        for runner in self.runners.values():
            with suppress(Exception):
                runner.give_back()
            runner.waker.close()
            runner.pump.link.close()
        for service in self.shared:
            if isinstance(service, row_services.LeaseKeeper):
                with suppress(Exception):
                    service.notify()
                service.link.close()
