"""A worker: everything that one process does, put together. It lives on an event loop, alone or in a program."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from penstock.database.ears import ear_for
from penstock.doors import ended
from penstock.errors import PenstockError
from penstock.pipelines import timers
from penstock.queue.glance import Seen, Wanted
from penstock.queue.jobs import Attempt, Claim
from penstock.queue.wakeups import CHORES, READY
from penstock.runtime import dwelling
from penstock.runtime.crew import Crew
from penstock.runtime.departure import Departure
from penstock.runtime.heartbeat import Heartbeat
from penstock.runtime.hop import hop
from penstock.runtime.housekeeping import Housekeeping
from penstock.runtime.identity import Identity
from penstock.runtime.job_source import JobSource
from penstock.runtime.lanes import Lanes
from penstock.runtime.neighbours import Neighbours
from penstock.runtime.options import WorkerOptions
from penstock.runtime.pump import Pump
from penstock.runtime.rest import resting
from penstock.runtime.rows import RowWork
from penstock.runtime.service import Service
from penstock.runtime.waker import Waker
from penstock.runtime.work import Interruption
from penstock.surroundings import Surroundings

if TYPE_CHECKING:
    from penstock.runtime.host import Host

WATCH_INTERVAL = 0.5
SHORTEST_POLL = 0.02
POLL = 1.0
JOB_ROLES = ("all", "worker")
ROW_ROLES = ("all", "reconciler")


class Worker:
    """`async with app.worker():` or the whole of a worker process."""

    def __init__(self, app: Host, options: WorkerOptions) -> None:
        self.app = app
        self.options = options
        self.settings = app.settings
        self.role = options.role or app.settings.role
        self.stopping, self.stopped = asyncio.Event(), asyncio.Event()
        who = (self.role, options.supervisor_id, dict(options.details))
        self.identity = Identity(app.database, app.events, *who, self._tasks, dwelling.here)
        self.hurried = False
        self.services: list[Service] = []
        self._watch: asyncio.Task[None] | None = None
        self._departure = Departure(self)
        self._known_tasks = len(app.task_names)

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Register, then begin to claim. Who cannot, or is cancelled meanwhile, leaves again."""
        if self._watch is not None:
            raise PenstockError("a worker works once, and this one was started: make another, app.worker()")
        self.loop = asyncio.get_running_loop()
        thread = ThreadPoolExecutor(1, thread_name_prefix="penstock-arrive")
        arriving = thread.submit(self._arrive)
        try:
            await ended(arriving)
            if self.stopping.is_set():
                raise PenstockError("this worker was stopped before it had begun: make another, app.worker()")
            self._begin()
        except (Exception, asyncio.CancelledError):
            self.stopping.set()
            self.hurry()
            leaving = self._departure.begin(thread)
            self.stopped.set()
            if arriving.done():
                await ended(leaving)
            raise
        thread.shutdown(wait=False)

    def _arrive(self) -> None:
        self.app.prepare()
        self.identity.register()

    def _begin(self) -> None:
        self._assemble()
        for service in self.services:
            service.start()
        if self.role in ROW_ROLES:
            self.rows.start()
        self._watch = asyncio.create_task(self._watch_services())

    def _assemble(self) -> None:
        app = self.app
        ear = ear_for(app.database, app.wakeups.channel_of(READY))
        self.waker = Waker(ear)
        self.rest = resting(app.database, ear, self._holds, self.waker.wake)
        self.source = self._make_source()
        self.heartbeat = self._make_heartbeat()
        limits = (self.settings.payload_limit, self.settings.expand_limit)
        self.around = Surroundings(app.database, self.identity.id, app.follow, *limits, self.heartbeat.report)
        self.around.ending = self._loop_is_ending
        self.crew = self._make_crew()
        self.pump = self._make_pump()
        self.pump.claiming = self.role in JOB_ROLES
        self.housekeeping = Housekeeping(
            app.database,
            lambda: self.identity.id,
            app.wakeups,
            app.events,
            app.follow,
            app.chores,
            app.next_chore,
        )
        self.housekeeping.contact = self.heartbeat.contact
        self.housekeeping.neighbours = Neighbours(app.database, lambda: self.identity.dwelling)
        self.housekeeping.rest = self.pump.rest = self.rest
        self.rows = RowWork(app, lambda: self.identity.id, self.options.reconcilers)
        self._deafen = app.wakeups.listen(self._hear)
        app.wakeups.housekeepers += 1
        self.services = [self.heartbeat, self.pump, self.housekeeping]

    def _make_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self.app.database,
            self.identity,
            self.app.events,
            busy=lambda: self.crew.busy > 0,
            cancelled=lambda claims: hop(self.loop, self.crew.interrupt, claims, Interruption.CANCELLED),
            declared_dead=self._declared_dead,
            knows=self.source.holdings.knows,
            in_doubt=lambda: self.pump.doubt(),  # noqa: PLW0108 - it is made later
            rest=self.rest,
            wanted=self._wanted,
            seen=self._seen,
            look_up=self._departure.go_if_deserted,
        )

    def _make_source(self) -> JobSource:
        app, dialect = self.app, self.app.database.dialect
        queues = self.options.queues or self.settings.queues
        return JobSource(
            lambda: self.identity.id,
            self._tasks,
            Lanes(queues, self.settings.sweep_interval, dialect.keeps_dead_rows),
            app.wakeups,
            app.events,
            app.follow,
            app.hydrate,
            dialect.fuses,
            app.limited,
            app.foresee,
        )

    def _make_crew(self) -> Crew:
        limit = self.options.concurrency or self.settings.concurrency
        return Crew(
            self.around,
            self.app.find_task,
            lambda attempt: self.pump.finished(attempt),  # noqa: PLW0108 - the pump is made after its crew
            self.source.forget,
            self.app.events,
            limit,
            max(0, 2 * self.settings.batch - limit),
            self.settings.executor_processes,
        )

    def _make_pump(self) -> Pump[Claim, Attempt]:
        return Pump(
            self.app.database,
            self.source,
            self.crew.room,
            self.crew.hand_over,
            self.waker,
            self.app.events,
            self.settings.batch,
            (SHORTEST_POLL, self.settings.poll_interval or POLL),
        )

    def _tasks(self) -> Sequence[str]:
        return self.app.task_names

    def _hear(self, subject: str) -> None:
        if subject.startswith(READY):
            self.waker.wake(subject)
        elif subject == CHORES:
            self.housekeeping.call()

    def _holds(self) -> bool:
        """There is something here that must not be taken for a dead process's, or is not yet written down."""
        unwritten = self.pump.unsettled > 0 or self.pump.in_doubt
        return unwritten or self.source.holdings.count + self.crew.busy > 0 or self.rows.holds

    def _wanted(self) -> Wanted:
        tasks = self._tasks() if self.pump.claiming else ()
        left = timers.REMIND_SIGNED if self.settings.secret is None else ""
        return Wanted(tasks, self.source.lanes.names, left, self.settings.reap_after)

    def _seen(self, seen: Seen) -> None:
        if seen.ready:
            self.waker.wake(READY)
        self.housekeeping.glanced(seen)

    def _declared_dead(self) -> None:
        """Nothing that we hold is ours any more."""
        self.source.holdings.clear()
        if not self.loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._abandon(), self.loop).result(5)

    async def _abandon(self) -> None:
        self.crew.abandon_all()

    async def _watch_services(self) -> None:
        """A thread that died is started again: nothing here may end silently, nor outlive the loop."""
        try:
            while True:
                await asyncio.sleep(WATCH_INTERVAL)
                if not self.stopping.is_set():
                    self._look_after_services()
        except asyncio.CancelledError:
            await self.stop(0)
            raise

    def _look_after_services(self) -> None:
        self.around.process = self.identity.id
        self.housekeeping.look_next_door()
        self._notice_new_tasks()
        for service in self.services:
            if not service.alive and not service.stopping.is_set():
                service.start()
        if self.role in ROW_ROLES:
            self.rows.revive()

    def _loop_is_ending(self) -> bool:
        """Or everything on it is being cancelled, which comes to the same: then so is the watch."""
        return self._watch is not None and self._watch.cancelling() > 0

    def _notice_new_tasks(self) -> None:
        known, self._known_tasks = self._known_tasks, len(self.app.task_names)
        if known != self._known_tasks:
            self.rest.rouse()  # there may be work for them, of which nobody will tell

    async def stop(self, timeout: float | None = None) -> None:
        """Stop claiming, give back what has not begun, let the rest finish in time, give that back too.

        Who is cancelled meanwhile has no more patience: what still runs is given back at once.
        """
        if self.stopping.is_set():
            await self.stopped.wait()  # somebody else's stop is under way: it is over when that is
            if self._departure.leaving is not None:
                await ended(self._departure.leaving)
            return
        self.stopping.set()
        try:
            if self.services:
                await self._departure.go(self.settings.shutdown_timeout if timeout is None else timeout)
        finally:
            self.stopped.set()
            if self._watch is not None:
                self._watch.cancel()

    def dump_stacks(self) -> None:
        """Have the processes of handlers show where they stand; this one is asked by its own signal."""
        if self.services:
            self.crew.processes.dump_stacks()

    def hurry(self) -> None:
        """Stop at once: what still runs is given back without waiting for it."""
        self.hurried = True

    # for its departure

    @property
    def busy(self) -> int:
        return self.crew.busy + self.rows.busy

    @property
    def at_rest(self) -> bool:
        return not (self.source.holdings.count or self.pump.unsettled) and self.rows.at_rest

    def deafen(self) -> None:
        self._deafen()
        self.app.wakeups.housekeepers -= 1

    def close_links(self) -> None:
        self.waker.close()
        self.pump.link.close()
        self.heartbeat.link.close()
