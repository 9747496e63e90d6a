"""Draining: a whole worker in the caller's own thread, one job at a time, until nothing is due.

The pump, the source, the housekeeping and the call are the worker's own; the caller takes the dispatcher's place.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from penstock.database.dialect import Lane
from penstock.database.listeners import NoListener
from penstock.errors import PenstockError
from penstock.handler_environment import HandlerEnvironment
from penstock.queue import job_records, reclaim
from penstock.queue.jobs import Attempt, Claim
from penstock.runtime.executors.job_work import JobWork, unfit
from penstock.runtime.liveness.housekeeping import Housekeeping
from penstock.runtime.liveness.limit_keeper import Declared
from penstock.runtime.liveness.process_row import Identity
from penstock.runtime.pump.job_source import JobSource
from penstock.runtime.pump.lanes import Lanes
from penstock.runtime.pump.pump import Pump
from penstock.runtime.pump.waker import Waker
from penstock.runtime.service import Turn
from penstock.runtime.supervisor import worker_process
from penstock.telemetry.events import ClaimLost
from penstock.testing.drain_rows import ReconcilerRounds
from penstock.values.outcome import Event, Raised, Rejected, TimedOut
from penstock.values.parse import QueueLimit, checked, read_queues

if TYPE_CHECKING:
    from penstock.app import Penstock

Queues = str | Iterable[str | QueueLimit] | None

_dead: WeakKeyDictionary[Penstock, set[str]] = WeakKeyDictionary()
"""Process ids of drains that were crashed: the next drain takes back their jobs."""


def drain(app: Penstock, *, queues: Queues = None, limit: int | None = None, raises: bool = False) -> int:
    """Run everything that is due, here and now, one job after the other; how many attempts that were.

    What the jobs enqueue is run too, and the rows of reconcilers that are due are visited, unless `queues` asks for
    some jobs only. What is not due stays: move the clock with `travel`. `limit` ends it after so many attempts and
    visits. Inside a running event loop, await `drain_async`.

    `raises`: the first error of a handler, with its traceback, is raised here too, also if it would be tried again.
    It is recorded before, as always, and what is due after it is left.
    """
    _refuse_inside_a_loop()
    hand = ManualWorker(app, queues, raises)
    with hand, ReconcilerRounds(app, queues is None, hand.hear) as rounds, asyncio.Runner() as runner:
        while True:
            while (left := _left(limit, hand, rounds)) != 0 and (claim := hand.take()) is not None:
                if (work := hand.begin(claim)) is None:
                    continue
                if work.executor == "async":
                    event = worker_process.run_on(runner, work.run_on_loop(hand.around))
                else:
                    event = work.run_here(hand.around)
                hand.finish(work, event)
            if left == 0 or not rounds.go(left):
                break
    return _concluded(hand, rounds)


async def drain_async(
    app: Penstock, *, queues: Queues = None, limit: int | None = None, raises: bool = False
) -> int:
    """`drain` for async tests: `async def` handlers run on the caller's event loop, others in a thread."""
    hand = ManualWorker(app, queues, raises)
    await asyncio.to_thread(hand.__enter__)
    try:
        with ReconcilerRounds(app, queues is None, hand.hear) as rounds:
            while True:
                await _drain_jobs_async(hand, rounds, limit)
                left = _left(limit, hand, rounds)
                if left == 0 or not await rounds.go_async(left):
                    break
    except BaseException as error:
        await asyncio.to_thread(hand.__exit__, type(error), error, None)
        raise
    await asyncio.to_thread(hand.__exit__, None, None, None)
    return _concluded(hand, rounds)


async def _drain_jobs_async(hand: ManualWorker, rounds: ReconcilerRounds, limit: int | None) -> None:
    while _left(limit, hand, rounds) != 0 and (claim := await asyncio.to_thread(hand.take)) is not None:
        if (work := hand.begin(claim)) is None:
            continue
        if work.executor == "async":
            event = await asyncio.create_task(work.run_on_loop(hand.around))
        else:
            event = await asyncio.to_thread(work.run_here, hand.around)
        hand.finish(work, event)


def _concluded(hand: ManualWorker, rounds: ReconcilerRounds) -> int:
    if hand.error is not None:
        raise hand.error
    return hand.attempts + rounds.visits


def _left(limit: int | None, hand: ManualWorker, rounds: ReconcilerRounds) -> int | None:
    if hand.error is not None:
        return 0
    return None if limit is None else max(0, limit - hand.attempts - rounds.visits)


class ManualWorker:
    """A worker without threads: it takes one job, gets its outcome, and takes the next."""

    def __init__(self, app: Penstock, queues: Queues, raises: bool = False) -> None:
        self.app = app
        self.attempts = 0
        self.error: BaseException | None = None
        """The first error that is to be raised."""
        self.hear = self._keep if raises else None
        self.reports: dict[str, tuple[float, str]] = {}
        self.identity = Identity(app.database, app.events, "all", details={"testing": "drain"})
        limits = (app.settings.payload_limit, app.settings.expand_limit)
        self.around = HandlerEnvironment(app.database, "", app.follow, *limits, self._report, hear=self.hear)
        self._taken: list[Claim] = []
        self._room = 1
        lanes = Lanes(checked("queues", queues, read_queues), 0.0, uses_floor=False, shuffle=_in_order)
        self.source = JobSource(
            self._name,
            lambda: app.task_names,
            lanes,
            app.wakeups,
            app.events,
            app.follow,
            app.prepare_claimed_steps,
            limited=app.limited,
            lookup=app.run_lookup,
        )
        self.housekeeping = self._housekeeping()
        self.housekeeping.follow_controls = lambda controls: lanes.control(lanes.queues, controls.paused)
        self.waker = Waker(NoListener())
        self.pump: Pump[Claim, Attempt] = Pump(
            app.database,
            self.source,
            lambda: self._room,
            self._taken.extend,
            self.waker,
            app.events,
            app.settings.batch,
            (0.0, 0.0),
        )

    def _housekeeping(self) -> Housekeeping:
        app = self.app
        return Housekeeping(
            app.database,
            self._name,
            app.wakeups,
            app.events,
            app.follow,
            app.chores,
            declared=Declared(lambda: app.task_names, app.limited),
            fire=app.fire_ticks,
        )

    def __enter__(self) -> ManualWorker:
        if self.app.database.callers_transaction() is not None:
            raise PenstockError(
                "drain(app) inside an open transaction would see nothing of it: a worker sees what is committed. In "
                "Django, use a TransactionTestCase; in a TestCase, assert_enqueued(app, task) sees what was enqueued"
            )
        self.app.prepare()
        self.app.declare_schedules()
        self._reap_dead_drains()
        self.around.process = self.identity.register()
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        try:
            if error is None:
                self._room = 0
                self._turn()
                self.app.database.in_transaction(reclaim.remove_process, self.identity.id)
        except BaseException as failure:
            error = failure
            raise
        finally:
            if error is not None:
                _dead.setdefault(self.app, set()).add(self.identity.id)
                self.pump.link.close()
            self.pump.link.keep_idle()
            self.waker.close()

    def take(self) -> Claim | None:
        """Settle what is finished and claim the next job that is due; None when there is none."""
        while True:
            # Promote first: due jobs are taken by priority, like all others.
            worked = self.housekeeping.promote_due()
            self.source.lanes.force_sweep()
            worked |= self._turn()
            if self._taken:
                return self._taken.pop()
            if not worked and not self._look_after():
                return None

    def begin(self, claim: Claim) -> JobWork | None:
        """The work for a claim. None: it cannot be made, which is the outcome of the attempt, as in any worker."""
        task = self.app.find_task(claim.task)
        try:
            return JobWork.of(claim, task)
        except Exception as error:
            self.attempts += 1
            if self.hear is not None:
                self.hear(error)
            self.pump.finished(unfit(claim, task, error))
            return None

    def finish(self, work: JobWork, event: Event | None) -> None:
        """Take the event of an attempt; the next turn settles the job."""
        self.attempts += 1
        if isinstance(event, Raised) and event.failure.type == KeyboardInterrupt.__name__:
            raise KeyboardInterrupt
        if self.reports:
            self.app.database.in_transaction(job_records.record, self.reports)
            self.reports = {}
        if event is None:
            self.app.events.emit(ClaimLost(work.claim.job_id, work.claim.task, work.claim.generation))
            return
        if work.timeout is not None and time.monotonic() - work.began > work.timeout:
            # Nothing here can stop a call; but a worker would have timed it out, so this is a timeout.
            event = TimedOut(work.timeout)
        if self.hear is not None and isinstance(event, Raised | TimedOut | Rejected):
            self.hear(_without_exception(work.claim.task, event))
        self.pump.finished(work.outcome(event))

    def _keep(self, error: BaseException) -> None:
        if self.error is None:
            self.error = error

    def _turn(self) -> bool:
        """Do a turn of the pump; True if something was settled or claimed, even if there was nothing to run."""
        worked = self.app.database.with_retries(self.pump.turn) is Turn.WORKED
        while self.pump.unsettled:
            self.app.database.with_retries(self.pump.turn)
        return worked

    def _look_after(self) -> bool:
        """The chores of a worker; True if there was something to do."""
        worked = self.housekeeping.promote()
        if self.housekeeping.next_tick is not None:
            worked |= self.app.fire_ticks(waiting=True)
        worked |= self.housekeeping.reaper.turn()
        for chore in self.app.chores:
            worked |= chore()
        return worked

    def _reap_dead_drains(self) -> None:
        for process in _dead.pop(self.app, ()):
            self.app.database.in_transaction(reclaim.remove_process, process)
        while self.housekeeping.reaper.reclaim():
            pass

    def _report(self, job_id: str, fraction: float, message: str) -> None:
        self.reports[job_id] = (fraction, message)

    def _name(self) -> str:
        return self.identity.id


def _without_exception(task: str, event: Raised | TimedOut | Rejected) -> PenstockError:
    """An error for a call in which no handler raised: because of its arguments, its result or its time."""
    if isinstance(event, TimedOut):
        return PenstockError(f"{task} took longer than its timeout of {event.seconds:g} s")
    error = PenstockError(f"{task}: {event.failure}")
    error.add_note(event.failure.traceback)
    return error


def _in_order(lanes: list[Lane]) -> None:
    """A worker takes queues of one priority in turns, at random; a test wants the same order every time."""
    lanes.sort(key=lambda lane: lane.queue)


def _refuse_inside_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise PenstockError("drain(app) cannot run inside an event loop: use `await drain_async(app)`")
