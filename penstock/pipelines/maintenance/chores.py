"""The chores of runs: due timers, large expands, and from time to time stuck runs, unknown tasks and retention.

Every process does it, and each piece is done once: it is a row that is locked, worked on and removed or moved on in
one transaction, and skipped by all other processes meanwhile. A process that dies in the middle has done nothing. A
piece that raises is reported and postponed, so that the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from pydantic_core import from_json

from penstock.app_services import AppServices
from penstock.database.boundary import Boundary, do_all
from penstock.database.transaction import Transaction
from penstock.errors import AdvancementFailed, PenstockError
from penstock.pipelines.advance import expand, finish, timers
from penstock.pipelines.advance.state import EngineState
from penstock.pipelines.lifecycle import cancel, chains, reminders, run_line, signals, start
from penstock.pipelines.maintenance import repair as stuck
from penstock.pipelines.maintenance import retention
from penstock.pipelines.maintenance.repair import Stuck
from penstock.queue import audit, processes, unknown_tasks
from penstock.queue.jobs import EndedStep
from penstock.queue.retention import prune_ticks
from penstock.queue.wakeups import ENDED, READY
from penstock.telemetry.events import AttemptSettled, RunRepaired
from penstock.values.fork_safety import cached_property
from penstock.values.ids import FIRST_ID, new_id
from penstock.values.status import JobStatus, OutcomeKind, Reason

Timer = tuple[int, str, str, str]
"""When it is due, its id, its kind, and the run it is for."""
ROUNDS = 60.0
"""Seconds between two rounds."""
BATCH = 100


class Chores:
    """The chores of one process; one turn does each kind of work once."""

    def __init__(self, engine_state: EngineState, host: AppServices) -> None:
        self.engine_state = engine_state
        self.host = host
        self.name = new_id()
        self._rounds_at: float | None = time.monotonic() + ROUNDS
        self._looked_at: str | None = None
        self._boundaries: dict[str, Boundary[Any]] = {}
        self.next_due: float | None = None
        """Seconds until the next timer is due, as an idle turn has read it."""

    def boundary(self, what: str) -> Boundary[Any]:
        """The boundary of rows of one kind, which sets aside rows that cannot be handled."""
        found = self._boundaries.get(what)
        if found is None:
            found = self._boundaries[what] = Boundary(self.host.database, self.host.events, what)
        return found

    @cached_property
    def advancer(self) -> expand.Advancer:
        return expand.Advancer(self.engine_state)

    def turn(self) -> bool:
        """True if there was something to do."""
        database = self.host.database
        due, expands = database.read(timers.look, self._left)
        self.next_due = None
        worked = do_all(
            database,
            (
                lambda: due == 0 and self.take_timer(),
                lambda: expands and self._advance(),
                self._rounds,
            ),
        )
        self.next_due = None if worked else due
        return worked

    def _rounds(self) -> bool:
        """A round: one process checks everything from time to time, a batch per turn, so that other chores need not
        wait."""
        if self._rounds_at is not None:
            if time.monotonic() < self._rounds_at:
                return False
            self.admit_waiting()
            if not self._is_ours():
                return False
            self._rounds_at, self._looked_at = None, FIRST_ID
        if self._looked_at is not None:
            self._looked_at = self._repair_some(self._looked_at, stuck.OLD_ENOUGH)[1]
            return True
        if self._prune_some(self.engine_state.host.settings.retention)[1]:
            return True
        self._rounds_at = time.monotonic() + ROUNDS
        more = do_all(
            self.host.database, (self._prune_audit, self._prune_ticks, lambda: self.give_up_unknown() < 0)
        )
        if more:
            self._rounds_at = None
        return more

    def _prune_ticks(self) -> bool:
        age = self.engine_state.host.settings.tick_retention
        return age is not None and self.host.database.in_transaction(prune_ticks, age, BATCH)

    def _prune_audit(self) -> bool:
        kept = self.engine_state.host.settings.audit_retention
        return kept is not None and self.host.database.in_transaction(audit.prune, kept)

    def _prune_some(self, age: float | None) -> tuple[int, bool]:
        """Remove some old runs; returns how many, and whether there are more.

        A run that cannot be removed is skipped.
        """
        if age is None:
            return 0, False
        database, old = self.host.database, self.boundary("the old run")
        left = old.left
        try:
            return database.in_transaction(retention.prune, age, left)
        except Exception as error:
            if database.is_passing(error):
                raise
            runs = database.in_transaction(retention.leaving, age, left)

            def some(only: Sequence[str]) -> tuple[int, bool]:
                return database.in_transaction(retention.prune, age, left, only)

            done = old.handle_apart(runs, some, error)
            return sum(gone for gone, _ in done), True

    def _is_ours(self) -> bool:
        self._rounds_at = time.monotonic() + ROUNDS
        return self.host.database.in_transaction(processes.take_lease, "runs", self.name, ROUNDS * 2)

    def admit_waiting(self) -> None:
        """Admit runs of all lines.

        Each process does this, so that a limit which its code has changed counts from now on.
        """
        lines, database = self.boundary("the line of the pipeline"), self.host.database
        left = set(lines.left)

        def admit(some: Sequence[str]) -> None:
            for pipeline in some:
                database.in_transaction(run_line.admit, pipeline, self._most_running(pipeline))

        for pipeline in database.read(run_line.waited_for):
            if pipeline not in left:
                lines.handle([pipeline], admit)

    def _most_running(self, pipeline: str) -> int | None:
        """How many runs of a pipeline may be under way by this process's code, 0 for any number; None: the pipeline
        is unknown here."""
        found = self.engine_state.host.find_pipeline(pipeline)
        return None if found is None else found.settings.max_running or run_line.UNLIMITED

    def repair(self, age: float = stuck.OLD_ENOUGH) -> list[Stuck]:
        """Find runs that cannot advance any more, and repair them."""
        found: list[Stuck] = []
        after: str | None = FIRST_ID
        while after is not None:
            some, after = self._repair_some(after, age)
            found += some
        return found

    def _repair_some(self, after: str, age: float) -> tuple[list[Stuck], str | None]:
        """Repair a batch of runs; returns the repaired ones, and where to go on."""
        database = self.host.database
        runs = database.read(stuck.look, after, BATCH, age)
        boundary = self.boundary("the run")
        left = set(boundary.left)

        def mend(some: Sequence[str]) -> list[Stuck | None]:
            return [database.in_transaction(partial(stuck.repair, self.engine_state), run) for run in some]

        mended = [boundary.handle([run], mend) for run in runs if run not in left]
        found = [one for done in mended for some in done for one in some if one is not None]
        for one in found:
            self.host.events.emit(RunRepaired(one.run, one.repair))
            self.engine_state.host.wakeups.notify(READY)
        return found, runs[-1] if len(runs) == BATCH else None

    def prune(self, age: float | None = None) -> int:
        """Remove old runs, by default as old as the setting `retention` says; returns how many."""
        age = self.engine_state.host.settings.retention if age is None else age
        removed, more = 0, age is not None
        while more:
            gone, more = self._prune_some(age)
            removed += gone
        return removed

    def give_up_unknown(self) -> int:
        """Fail jobs that have waited too long for a worker that knows their task; how many."""
        age = self.engine_state.host.settings.unknown_task_after
        if age is None:
            return 0
        found = self.host.database.read(unknown_tasks.look, age)
        boundary = self.boundary("the job of an unknown task")
        left = set(boundary.left)
        found = [place for place in found if place not in left]
        given = [job for some in boundary.handle(found, self._give_up) for job in some] if found else []
        for job in given:
            ended = (OutcomeKind.ERRORED.value, JobStatus.FAILED.value, Reason.UNKNOWN_TASK.value)
            told = AttemptSettled(job.job_id, job.task, job.queue, job.generation, *ended, 0.0, job.error)
            self.host.events.emit(told)
        if given:
            self.engine_state.host.wakeups.notify(ENDED)
        return len(given)

    def _give_up(self, found: Sequence[unknown_tasks.QueuePosition]) -> list[unknown_tasks.GivenUp]:
        return self.host.database.in_transaction(
            unknown_tasks.give_up, found, partial(finish.follow, self.engine_state)
        )

    @property
    def _left(self) -> str:
        """The kind of timers that this process leaves to others: without a secret it cannot sign tokens."""
        return timers.REMIND_SIGNED if self.engine_state.host.settings.secret is None else ""

    def take_timer(self) -> bool:
        """Take a timer that is due, in a transaction of its own. False: there is none."""
        taken: list[Timer] = []
        try:
            return self.host.database.in_transaction(self.timer, taken)
        except signals.Overtaken:
            return True
        except Exception as error:
            if not taken or self.host.database.is_passing(error):
                raise
            self._put_off(taken[-1], error)
            return True

    def _advance(self) -> bool:
        try:
            return self.host.database.in_transaction(self.advancer.turn)
        except Exception as error:
            at = self.advancer.at
            if at is None or self.host.database.is_passing(error):
                raise
            pause = self.boundary("the expand").set_aside(at, _unspent(error))
            problem = f"{type(error).__name__}: {error}"
            self.host.database.in_transaction(expand.postpone, at, problem, pause)
            self._spend(str(self.advancer.run), error)
            return True

    def _put_off(self, timer: Timer, error: Exception) -> None:
        """Postpone a timer that failed.

        For a run that is given up, a timer that would advance it is removed; one that ends it stays.

        Then it will be done: for a run that is given up nothing is planned any more. And so it will if it was another
        that could not be planned, such as the parent of this one.
        """
        due, id, kind, run = timer
        database = self.host.database
        pause = self.boundary("the timer").set_aside((kind, id, "of run", run), _unspent(error))
        # First of all: whatever else fails, this timer must not be the next one again.
        at = database.in_transaction(timers.postpone, due, id, pause)
        goes_on = kind in timers.PLANNING
        given_up = self._spend(run, error) if goes_on or isinstance(error, AdvancementFailed) else None
        if goes_on and given_up == run:
            database.in_transaction(timers.forget, at, id)

    def _spend(self, run: str, error: Exception) -> str | None:
        """Count a failed try for a run; after the last try the run is halted, and its id returned."""
        failed = (
            error
            if isinstance(error, AdvancementFailed)
            else self.engine_state.planning_failures.of(run, error)
        )
        failed.spend()
        if not self.engine_state.planning_failures.given_up([failed.run_id]):
            return None
        self.host.database.in_transaction(partial(finish.give_up, self.engine_state), failed.run_id)
        return failed.run_id

    def timer(self, tx: Transaction, taken: list[Timer]) -> bool:
        """One timer that is due; `taken` is told which."""
        tx.stage("timer")
        row = tx.row(timers.NEXT, left=self._left)
        if row is None:
            return False
        due, id, kind, run, job, data = row
        taken.append((due, id, kind, run))
        tx.run(timers.REMOVE, due=due, id=id)
        match kind:
            case timers.START:
                start.start(self.engine_state, tx, run)
            case timers.SIGNAL:
                self._follow(tx, signals.deliver(self.engine_state, tx, run, data))
            case timers.ELEMENT_SIGNAL:
                self._follow(tx, signals.deliver(self.engine_state, tx, run, *from_json(data)))
            case timers.LOST:
                self._follow(tx, signals.end_losers(tx, run, data))
            case timers.WAIT:
                ended = signals.time_out(self.engine_state, tx, run, job, data)
                self._follow(tx, ended)
                signals.confirm(self.engine_state, tx, run, data, ended)
            case timers.REMIND | timers.REMIND_SIGNED:
                reminders.remind(self.engine_state, tx, run, job, data, int(due))
            case timers.DEADLINE:
                cancel.exceed_deadline(self.engine_state, tx, run)
            case timers.INTERRUPT:
                cancel.interrupt_running(self.engine_state, tx, run)
            case timers.SWEEP:
                self._follow(tx, cancel.sweep_unstarted(tx, run, data))
            case _:
                self._steer(tx, kind, run, data)
        return True

    def _steer(self, tx: Transaction, kind: str, run: str, data: str) -> None:
        match kind:
            case timers.CANCEL:
                cancel.cancel_child(self.engine_state, tx, run, data)
            case timers.CHILDREN:
                cancel.cancel_children(tx, run, data)
            case timers.GIVE_UP:
                self._follow(tx, cancel.give_up(self.engine_state, tx, run, data))
            case timers.REQUEUE:
                cancel.requeue(self.engine_state, tx, run, data)
            case timers.ADMIT:
                run_line.admit(tx, data, self._most_running(data))
            case timers.CHAIN:
                chains.decide(self.engine_state, tx, run)
            case _:
                # A timer of a newer version: a process of that version takes it.
                raise PenstockError(f"there is no timer of kind {kind!r}")

    def _follow(self, tx: Transaction, ended: Sequence[EndedStep]) -> None:
        if ended:
            finish.follow(self.engine_state, tx, ended)


def _unspent(error: Exception) -> Exception:
    """The cause to report; the failed try is counted by the caller."""
    return PenstockError(str(error)) if isinstance(error, AdvancementFailed) else error
