"""Hosts: machines with a process on them that starts, works, freezes, stops, dies and is started again.

A worker host runs the worker as it is: `Worker.start`, its services, crew and executors, `Worker.stop`. A client
host runs a script of calls. Each has a database object and connections of its own, and clocks of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.database.dialect import Lane
from penstock.database.transaction import Transaction
from penstock.errors import DatabaseUnavailable
from penstock.queue import processes
from penstock.queue.claim import claim, discover
from penstock.runtime.reconcilers.row_services import RowListener
from penstock.runtime.worker import Worker, WorkerOptions
from penstock.values.ids import new_token
from tests.simulation.fibers import Asked, Owner
from tests.simulation.loops import Loop

if TYPE_CHECKING:
    from tests.simulation.machines import Machine
    from tests.simulation.world import World

LATE = 2
"""So much a late claim takes at most."""
KNOWN = "SELECT 1 FROM penstock_processes WHERE id = ?"


class Host(Owner):
    """One life of a machine."""

    kind = "host"

    def __init__(self, world: World, machine: Machine, life: int) -> None:
        machine.boot()
        self.world = world
        self.machine = machine
        self.app = machine.app
        self.name = f"{machine.name}.{life}"
        self.life = life
        self.alive = True
        self.frozen = False
        self.leaving = False
        """It was asked to stop."""
        self.gone = False
        """It has stopped by itself, in order."""
        self.thaws_at = 0
        self.stopped_at = ""
        """The place where it stood still, if that was to last until it is taken for dead."""
        self.skew = int(world.rng.uniform(-3600, 3600)) * 1_000_000
        self.loop = Loop(world, self)

    def start(self) -> None:
        self.world.note(self.name, "starts")
        self.world.spawn("main", self.live, self)

    def live(self) -> None:
        """What its process does, from beginning to end."""
        raise NotImplementedError

    def leave(self) -> None:
        """Go in order; what the process still runs ends with it."""
        self.gone = True
        self.world.record("left", self.name)

    def crash(self, why: str = "crash") -> None:
        """Dead from here on. What it had open is rolled back; nothing of it runs again."""
        if self.alive:
            self.world.record("crashed", self.name, why)
            self.machine.shut()
            self.world.bury(self)

    def freeze(self, micros: int) -> None:
        """Nothing of it moves. The server does not wait for a transaction that does not go on."""
        self.frozen = True
        self.thaws_at = self.world.now + micros
        self.world.record("froze", self.name, micros)
        holder = self.machine.dialect.server.holder
        if holder in self.machine.dialect.wires:
            holder.cut()

    def thaw(self) -> None:
        self.frozen = False
        self.world.record("thawed", self.name)


class WorkerHost(Host):
    """A worker process."""

    kind = "worker"
    worker: Worker | None = None

    def __init__(self, world: World, machine: Machine, life: int, reconcilers: Sequence[str]) -> None:
        super().__init__(world, machine, life)
        self.reconcilers = reconcilers

    def live(self) -> None:
        self.loop.call_soon(lambda: self.loop.create_task(self._work()))
        self.loop.run()

    async def _work(self) -> None:
        worker = Worker(self.app, WorkerOptions(reconcilers=self.reconcilers))
        try:
            await worker.start()
        except DatabaseUnavailable:
            self.world.record("crashed", self.name, "the database was not there when it started")
            self.gone = True
            return
        worker.source.lanes.shuffle = self.world.rng.shuffle
        self.worker = worker

    def hear(self) -> None:
        """Something was written somewhere."""
        if self.worker is not None:
            self.worker.waker.wake("written")
            for service in self.worker.rows.shared:
                if isinstance(service, RowListener):
                    service.waker.wake("written")

    def claim_late(self) -> None:
        """As the database does it for a message that was long on its way: no process here hears of it."""
        assert self.worker is not None
        process, tasks = self.worker.identity.id, self.app.task_names

        def take(tx: Transaction) -> None:
            lanes = [Lane(queue, tier, 0, LATE) for queue, tier in discover(tx, None)]
            claim(tx, lanes, tasks, LATE, new_token(), process)

        with suppress(Exception):  # it may also get lost
            self.machine.database.in_transaction(take)

    def cancel_running(self) -> None:
        """An operator cancels what its event loop works on, and it hears of that at once."""
        assert self.worker is not None
        worker, database = self.worker, self.machine.database
        works: list[Any] = [work for work in worker.dispatcher.active.values() if work.executor == "async"]
        with suppress(Exception):
            for work in works:
                self.world.record("meddled", work.claim.run_id)
                self.app.job(work.claim.job_id).cancel()
            wanted, _ = database.read(processes.cancellations, worker.identity.id)
            worker.heartbeat.cancelled(wanted)

    def stop(self, hurried: bool) -> None:
        """A stop signal. Who is told to hurry was told a moment ago: its stop is the next thing on its loop."""
        self.leaving = True
        self.world.record("stopping", self.name, hurried)
        if hurried:
            self.loop.create_task(self._end(hurried))
        else:
            self.loop.call_soon(lambda: self.loop.create_task(self._end(hurried)))

    @property
    def is_known(self) -> bool:
        """Its process is there, for all who look at the database."""
        execute = self.machine.dialect.server.connection.execute
        return self.worker is not None and bool(execute(KNOWN, [self.worker.identity.id]).fetchone())

    async def _end(self, hurried: bool) -> None:
        assert self.worker is not None
        if hurried:
            self.worker.hurry()
        await self.worker.stop()
        self.leave()


class ClientHost(Host):
    """A process that calls the app from outside."""

    kind = "client"
    turning = False
    """Its event loop is turned: that of a script which has nothing for it is not."""

    def __init__(
        self, world: World, machine: Machine, life: int, script: Callable[[ClientHost], object]
    ) -> None:
        super().__init__(world, machine, life)
        self.script = script

    def live(self) -> None:
        self.script(self)
        self.leave()

    def ask(self, call: Callable[[ClientHost], Coroutine[Any, Any, Any]], patience: float | None) -> None:
        """Have this done on its event loop. Who loses patience hangs up: the call is cancelled where it is."""
        loop, made = self.loop, list[asyncio.Task[Any]]()

        def hang_up() -> None:
            made[0].cancel()

        if not self.turning:
            self.turning = True
            self.world.spawn("loop", loop.run, self)
        loop.call_soon(lambda: made.append(loop.create_task(call(self))))
        if patience is not None:
            loop.call_later(patience, hang_up)
        self.world.wait(Asked(lambda: made and made[0].done()), None)
        if made[0].cancelled():
            self.world.note(self.name, "has hung up")
        else:
            made[0].result()
