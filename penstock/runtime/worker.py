"""A worker: assembles everything that one process does. It runs on an event loop, alone or inside another program."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.async_bridge import ended, one_thread
from penstock.database.listeners import RelayedListener, hears, listener_for, new_channel
from penstock.errors import PenstockError
from penstock.handler_environment import HandlerEnvironment
from penstock.pipelines.advance import timers
from penstock.pipelines.maintenance.idle_check import IdleQuery, IdleReport
from penstock.queue import stack_dumps
from penstock.queue.jobs import Attempt, Claim
from penstock.queue.rules import queue_controls
from penstock.queue.rules.queue_controls import QueueControls
from penstock.queue.wakeup_targets import CHANNEL_KEY
from penstock.queue.wakeups import CHORES, CONTROLS, READY
from penstock.runtime.executors.dispatcher import Dispatcher, Unrecorded
from penstock.runtime.executors.executor_set import ExecutorSet
from penstock.runtime.executors.job_work import JobWork, work_maker
from penstock.runtime.executors.prefetch import JobPrefetch
from penstock.runtime.executors.work import Interruption
from penstock.runtime.liveness import host_identity
from penstock.runtime.liveness.heartbeat import Heartbeat
from penstock.runtime.liveness.host_identity import host_name
from penstock.runtime.liveness.housekeeping import Housekeeping
from penstock.runtime.liveness.limit_keeper import Declared
from penstock.runtime.liveness.local_processes import LocalProcesses
from penstock.runtime.liveness.process_row import Identity
from penstock.runtime.pump.idle import resting
from penstock.runtime.pump.job_source import JobSource
from penstock.runtime.pump.lanes import Lanes
from penstock.runtime.pump.pump import MOST_COLLECTED, Pump
from penstock.runtime.pump.turn_gate import TurnGate
from penstock.runtime.pump.waker import Waker
from penstock.runtime.reconcilers.reconciler_worker import RowWork
from penstock.runtime.service import Service, call_on_loop
from penstock.runtime.shutdown import Shutdown
from penstock.runtime.stacks import all_stacks
from penstock.telemetry.events import ClaimLost, ControlIgnored
from penstock.values.parse import QueueLimit

if TYPE_CHECKING:
    from penstock.app_services import AppServices


# The options of one worker.


def details(queues: Sequence[QueueLimit] | None, concurrency: int) -> dict[str, object]:
    """The details of a worker for its process row."""
    return {"queues": "all" if queues is None else ",".join(map(str, queues)), "concurrency": concurrency}


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """The options of one worker, beside the app's settings."""

    queues: Sequence[QueueLimit] | None = None
    concurrency: int | None = None
    role: str | None = None
    supervisor_id: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)
    """More details for the process row, for operators."""
    reconcilers: Sequence[str] | None = None
    """The reconcilers to run, by name; None: all that the app has."""
    turned: Callable[[], None] = _nothing
    """Called regularly on the event loop, while that is not blocked."""
    listener: RelayedListener | None = None
    """Receives wake-ups from the supervisor; None: the worker opens a listening connection of its own."""


WATCH_INTERVAL = 0.5
SHORTEST_POLL = 0.02
POLL = 1.0
JOB_ROLES = ("all", "worker")
ROW_ROLES = ("all", "reconciler")


def _turn_gate() -> TurnGate | None:
    """The gate of this machine; None where the processes of a user cannot share a file in memory."""
    with suppress(OSError, ValueError):
        return TurnGate.at(host_identity.shared_file("turns"))
    return None


class Worker:
    """`async with app.worker():` or the whole of a worker process."""

    def __init__(self, app: AppServices, options: WorkerOptions) -> None:
        self.app = app
        self.options = options
        self.settings = app.settings
        self.role = options.role or app.settings.role
        self.stopping, self.stopped = asyncio.Event(), asyncio.Event()
        self.channel = self._find_channel()
        """The channel on which other processes wake this worker alone."""
        who = (self.role, options.supervisor_id, {**options.details, CHANNEL_KEY: self.channel})
        self.identity = Identity(app.database, app.events, *who, self._tasks, host_identity.this_host)
        self.hurried = False
        self._paused_tasks: Set[str] = frozenset()
        """The tasks that the last claim left out."""
        self._ignored: set[tuple[str, str]] = set()
        self.services: list[Service] = []
        self._watch: asyncio.Task[None] | None = None
        self._shutdown = Shutdown(self)
        self._known_tasks = len(app.task_names)

    def _find_channel(self) -> str | None:
        if not hears(self.app.database):
            return None
        return new_channel() if self.options.listener is None else self.options.listener.own_channel

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Register, then begin to claim. If that fails or is cancelled, the worker shuts down again."""
        if self._watch is not None:
            raise PenstockError("a worker works once, and this one was started: make another, app.worker()")
        self.loop = asyncio.get_running_loop()
        thread = one_thread("arrive")
        arriving = thread.submit(self._arrive)
        try:
            await ended(arriving)
            if self.stopping.is_set():
                raise PenstockError("this worker was stopped before it had begun: make another, app.worker()")
            self._begin()
        except (Exception, asyncio.CancelledError):
            self.stopping.set()
            self.hurry()
            leaving = self._shutdown.begin(thread)
            self.stopped.set()
            if arriving.done():
                await ended(leaving)
            raise
        thread.shutdown(wait=False)

    def _arrive(self) -> None:
        self.app.prepare()
        self.controls = self.app.database.read(queue_controls.read)
        self._tell_unreadable(self.controls)
        self.identity.details |= self._details_of(self._queues_by(self.controls))
        self.identity.register()
        self.app.declare_schedules()

    def _begin(self) -> None:
        self._assemble()
        for service in self.services:
            service.start()
        if self.role in ROW_ROLES:
            self.rows.start_new()
        self._watch = asyncio.create_task(self._watch_services())
        self.app.worker_loops.append(self.loop)

    def _assemble(self) -> None:
        app = self.app
        listener = self.options.listener or listener_for(
            app.database, app.wakeups.channel_of(READY), self.channel
        )
        self.waker = Waker(listener)
        self.rest = resting(app.database, listener, self._holds, self.waker.wake)
        self.source = self._make_source()
        self.heartbeat = self._make_heartbeat()
        limits = (self.settings.payload_limit, self.settings.expand_limit)
        self.around = HandlerEnvironment(
            app.database, self.identity.id, app.follow, *limits, self.heartbeat.report
        )
        self.around.ending = self._loop_is_ending
        self.executors = self._make_executors()
        self.dispatcher = self._make_dispatcher()
        self.pump = self._make_pump()
        self.pump.claiming = self.role in JOB_ROLES
        self.pump.gate = _turn_gate()
        self.pump.waiting = lambda: len(self.dispatcher.waiting)
        self.pump.worth_a_turn = max(1, min(MOST_COLLECTED, self.settings.unrecorded // 2))
        self.housekeeping = self._make_housekeeping()
        reaper = self.housekeeping.reaper
        reaper.outage_guard = self.heartbeat.outage_guard
        reaper.local_processes = LocalProcesses(app.database, lambda: self.identity.host_identity)
        self.housekeeping.rest = self.pump.rest = self.rest
        self.rows = RowWork(app, self.executors, lambda: self.identity.id, self.options.reconcilers)
        self._stop_listening = app.wakeups.listen(self._hear)
        app.wakeups.housekeepers += 1
        if self.channel is not None:
            app.wakeups.here.add(self.channel)
        self.housekeeping.control(self.controls)
        self.services = [self.heartbeat, self.pump, self.housekeeping]

    def _make_housekeeping(self) -> Housekeeping:
        app = self.app
        made = Housekeeping(
            app.database,
            lambda: self.identity.id,
            app.wakeups,
            app.events,
            app.follow,
            app.chores,
            app.next_chore,
            Declared(lambda: app.task_names, app.limited),
            app.fire_ticks,
        )
        made.follow_controls = self._follow_controls
        return made

    def _make_heartbeat(self) -> Heartbeat:
        return Heartbeat(
            self.app.database,
            self.identity,
            self.app.events,
            busy=lambda: self.dispatcher.busy > 0,
            cancelled=lambda claims: call_on_loop(
                self.loop, self.dispatcher.interrupt, claims, Interruption.CANCELLED
            ),
            declared_dead=self._declared_dead,
            knows=self.source.holdings.knows,
            in_doubt=lambda: self.pump.doubt(),  # noqa: PLW0108 - it is made later
            rest=self.rest,
            wanted=self._wanted,
            seen=self._seen,
            look_up=self._shutdown.go_if_deserted,
        )

    def _make_source(self) -> JobSource:
        app, dialect = self.app, self.app.database.dialect
        queues, paused = self._queues_by(self.controls), self.controls.paused
        return JobSource(
            lambda: self.identity.id,
            self._claimable,
            Lanes(queues, self.settings.sweep_interval, dialect.keeps_dead_rows, paused=paused),
            app.wakeups,
            app.events,
            app.follow,
            app.prepare_claimed_steps,
            dialect.fast_path.claim,
            app.limited,
            app.prefetch_runs,
            app.run_lookup,
        )

    def _make_executors(self) -> ExecutorSet:
        kind: Any = type(self.app)
        return ExecutorSet(self.around, self.app.events, kind, self.settings.executor_processes)

    def _make_dispatcher(self) -> Dispatcher[Claim, Attempt]:
        limit = self.options.concurrency or self.settings.concurrency
        return Dispatcher(
            self.executors,
            work_maker(self.app.find_task, self._finished),
            self._finished,
            self._lost,
            self.app.events,
            JobPrefetch(limit, max(0, 2 * self.settings.batch - limit)),
            Unrecorded(lambda: self.pump.unrecorded, self.settings.unrecorded),
        )

    def _finished(self, attempt: Attempt) -> None:
        self.pump.finished(attempt)

    def _lost(self, work: JobWork) -> None:
        claim = work.claim
        self.source.forget([claim])
        self.app.events.emit(ClaimLost(claim.job_id, claim.task, claim.generation))

    def _make_pump(self) -> Pump[Claim, Attempt]:
        return Pump(
            self.app.database,
            self.source,
            self.dispatcher.room,
            self.dispatcher.hand_over,
            self.waker,
            self.app.events,
            self.settings.batch,
            (SHORTEST_POLL, self.settings.poll_interval or POLL),
        )

    def _tasks(self) -> Sequence[str]:
        return self.app.task_names

    def _claimable(self) -> Sequence[str]:
        """The tasks to claim now: without those for which the system lacks threads, processes or memory just now."""
        self._paused_tasks = paused = self._find_paused()
        return [name for name in self._tasks() if name not in paused] if paused else self._tasks()

    def _find_paused(self) -> Set[str]:
        executors, processes = self.dispatcher.paused_executors, self.dispatcher.processes
        tasks: Set[str] = processes.paused_tasks if processes.import_pauses else frozenset()
        if not executors:
            return tasks
        known = ((name, self.app.find_task(name)) for name in self._tasks())
        return tasks | {name for name, task in known if task is not None and task.executor in executors}

    def _hear(self, subject: str) -> None:
        if subject.startswith(READY):
            self.waker.wake(subject)
        elif subject in (CHORES, CONTROLS):
            self.housekeeping.call()

    def _follow_controls(self, controls: QueueControls) -> None:
        """Follow the controls: take from the assigned queues, write them to the process row, and answer a request for
        stacks."""
        self._tell_unreadable(controls)
        lanes, queues = self.source.lanes, self._queues_by(controls)
        if (queues, controls.paused) != (lanes.queues, lanes.paused):
            lanes.control(queues, controls.paused)
            self.waker.wake(READY)
        if queues != self._queues_by(self.controls):
            self.identity.tell(self._details_of(queues))
        if controls.stacks != self.controls.stacks:
            self._show_stacks()
        self.controls = controls

    def _tell_unreadable(self, controls: QueueControls) -> None:
        """Report ignored controls, each once."""
        for host, error in controls.unreadable.items():
            if (host, error) not in self._ignored:
                self._ignored.add((host, error))
                self.app.events.emit(ControlIgnored(host, error))

    def _show_stacks(self) -> None:
        """Answer a request for stacks.

        The housekeeping's thread calls this, so it works even if the event loop is blocked.
        """
        database, id = self.app.database, self.identity.id
        if database.read(stack_dumps.is_wanted, id):
            database.in_transaction(stack_dumps.answer, id, all_stacks(self.loop))

    def _queues_by(self, controls: QueueControls) -> Sequence[QueueLimit] | None:
        return controls.queues_for(host_name(), self.options.queues or self.settings.queues)

    def _details_of(self, queues: Sequence[QueueLimit] | None) -> dict[str, object]:
        """The details that operators see; none, where the embedding program has given none."""
        known = self.options.details.keys()
        said = details(queues, self.options.concurrency or self.settings.concurrency)
        return {name: value for name, value in said.items() if name in known}

    def _holds(self) -> bool:
        """True if this process holds claims, or outcomes that are not settled."""
        unwritten = self.pump.unsettled > 0 or self.pump.in_doubt
        if unwritten or self.source.holdings.count + self.dispatcher.busy > 0:
            return True
        return bool(self.rows.runners) and self.rows.holds

    def _wanted(self) -> IdleQuery:
        tasks = self._tasks() if self.pump.claiming else ()
        left = timers.REMIND_SIGNED if self.settings.secret is None else ""
        return IdleQuery(tasks, self.source.lanes.names, left, self.settings.reap_after)

    def _seen(self, seen: IdleReport) -> None:
        if seen.ready:
            self.waker.wake(READY)
        self.housekeeping.apply_idle_report(seen)

    def _declared_dead(self) -> None:
        """Drop all claims: this process was declared dead."""
        self.source.holdings.clear()
        if not self.loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._abandon(), self.loop).result(5)

    async def _abandon(self) -> None:
        self.dispatcher.abandon_all()

    async def _watch_services(self) -> None:
        """Start threads again that died, and end the worker with its loop."""
        try:
            while True:
                self.options.turned()
                await asyncio.sleep(WATCH_INTERVAL)
                if not self.stopping.is_set():
                    self._look_after_services()
        except asyncio.CancelledError:
            await self.stop(0)
            raise

    def _look_after_services(self) -> None:
        self.around.process = self.identity.id
        self.dispatcher.free_lost()
        self.housekeeping.check_local_processes()
        self._notice_new_tasks()
        if self._paused_tasks - self._find_paused():
            self.rest.wake_up()
            self.waker.wake(READY)  # also for claims that were skipped meanwhile
        for service in self.services:
            if not service.alive and not service.stopping.is_set():
                service.start()
        if self.role in ROW_ROLES and self.app.reconcilers:
            self.rows.revive()

    def _loop_is_ending(self) -> bool:
        """True if the event loop is closing, or everything on it is being cancelled: then the watch is cancelled
        too."""
        return self._watch is not None and self._watch.cancelling() > 0

    def _notice_new_tasks(self) -> None:
        known, self._known_tasks = self._known_tasks, len(self.app.task_names)
        if known != self._known_tasks:
            self.rest.wake_up()  # there may be jobs of the new tasks, and no wake-up will come for them

    async def stop(self, timeout: float | None = None) -> None:
        """Stop claiming, give back what has not begun, let the rest finish in time, give that back too.

        If the caller is cancelled meanwhile, what still runs is given back at once.
        """
        if self.stopping.is_set():
            await self.stopped.wait()  # another caller's stop is under way: wait for its end
            if self._shutdown.leaving is not None:
                await ended(self._shutdown.leaving)
            return
        self.stopping.set()
        try:
            if self.services:
                await self._shutdown.go(self.settings.shutdown_timeout if timeout is None else timeout)
        finally:
            self.stopped.set()
            if self._watch is not None:
                self._watch.cancel()
                self.app.worker_loops.remove(self.loop)

    def dump_stacks(self) -> None:
        """Have the handler processes write their stacks; this process has a signal of its own."""
        if self.services:
            self.executors.processes.dump_stacks()

    def hurry(self) -> None:
        """Stop at once: what still runs is given back without waiting for it."""
        self.hurried = True

    # for its shutdown

    @property
    def busy(self) -> int:
        return self.dispatcher.busy + self.rows.busy

    @property
    def running_tasks(self) -> dict[str, int]:
        """The tasks whose handlers run here now, and how many of each."""
        if not self.services:
            return {}
        return dict(Counter(work.name for work in [*self.dispatcher.active.values()]))

    @property
    def at_rest(self) -> bool:
        return not (self.source.holdings.count or self.pump.unsettled) and self.rows.at_rest

    @property
    def only_refused(self) -> bool:
        """True if this process holds nothing but claims whose outcomes the database refuses."""
        held = self.source.holdings.count > self.pump.refused or self.pump.unsettled > 0
        return not held and self.rows.at_rest

    def stop_listening(self) -> None:
        self._stop_listening()
        self.app.wakeups.housekeepers -= 1
        self.app.wakeups.here.discard(self.channel or "")

    def close_links(self) -> None:
        self.waker.close()
        self.pump.link.close()
        self.heartbeat.link.close()
