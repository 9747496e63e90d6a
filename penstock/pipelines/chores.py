"""Looking after runs: timers that are due, large expands, and now and then what is stuck, unknown or old.

Every process does it, and each piece is done once: it is a row that is locked, worked on and removed or moved on in
one transaction, and skipped by everybody else meanwhile. Whoever dies in the middle has done nothing. A piece that
raises is reported and put off, so that it does not keep the others waiting.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from pydantic_core import from_json

from penstock.database.engine import Database
from penstock.database.transaction import Transaction
from penstock.errors import AdvancementFailed
from penstock.lazy import Lazy
from penstock.pipelines import retention, stuck, timers
from penstock.pipelines.desk import Desk
from penstock.pipelines.stuck import Stuck
from penstock.queue import audit, processes, unknown
from penstock.queue.jobs import Ended
from penstock.queue.wakeups import ENDED, READY
from penstock.telemetry.events import AttemptSettled, RunRepaired, Stream
from penstock.values.cached import cached_property
from penstock.values.ids import FIRST_ID, new_id
from penstock.values.status import JobStatus, OutcomeKind, Reason

if TYPE_CHECKING:
    from penstock.pipelines import (
        chains,
        closing,
        deadline,
        expand,
        giving_up,
        reminders,
        signals,
        steering,
        sweep,
        trigger,
    )
else:
    chains, closing = Lazy("penstock.pipelines.chains"), Lazy("penstock.pipelines.closing")
    deadline, expand = Lazy("penstock.pipelines.deadline"), Lazy("penstock.pipelines.expand")
    giving_up, reminders = Lazy("penstock.pipelines.giving_up"), Lazy("penstock.pipelines.reminders")
    signals, steering = Lazy("penstock.pipelines.signals"), Lazy("penstock.pipelines.steering")
    sweep, trigger = Lazy("penstock.pipelines.sweep"), Lazy("penstock.pipelines.trigger")

Timer = tuple[int, str, str, str]
"""When it is due, its id, its kind, and the run it is for."""
ROUNDS = 60.0
"""Seconds between two looks at everything."""
BATCH = 100


class Host(Protocol):
    """What the chores need of an app."""

    @property
    def database(self) -> Database: ...

    @property
    def events(self) -> Stream: ...


class Chores:
    """One turn looks at every kind of work once."""

    def __init__(self, desk: Desk, host: Host) -> None:
        self.desk = desk
        self.host = host
        self.name = new_id()
        self._rounds_at: float | None = time.monotonic() + ROUNDS
        self._looked_at: str | None = None
        self.next_due: float | None = None
        """Seconds, at the end of an idle turn, until a timer is due."""

    @cached_property
    def advancer(self) -> expand.Advancer:
        return expand.Advancer(self.desk)

    def turn(self) -> bool:
        """True if there was something to do."""
        database = self.host.database
        due, expands = database.read(timers.look, self._left)
        worked = due == 0 and self.take_timer()
        if expands:
            worked |= self._advance()
        worked |= self._rounds()
        self.next_due = None if worked else due
        return worked

    def _rounds(self) -> bool:
        """Now and then one process looks at everything: a batch a turn, so that nothing else has to wait for it."""
        if self._rounds_at is not None:
            if time.monotonic() < self._rounds_at or not self._is_ours():
                return False
            self._rounds_at, self._looked_at = None, FIRST_ID
        if self._looked_at is not None:
            self._looked_at = self._repair_some(self._looked_at, stuck.OLD_ENOUGH)[1]
            return True
        age = self.desk.host.settings.retention
        more = age is not None and self.host.database.in_transaction(retention.prune, age)[1]
        kept = self.desk.host.settings.audit_retention
        more = more or (kept is not None and self.host.database.in_transaction(audit.prune, kept))
        if not more:
            self._rounds_at = time.monotonic() + ROUNDS
            self.give_up_unknown()
        return more

    def _is_ours(self) -> bool:
        self._rounds_at = time.monotonic() + ROUNDS
        return self.host.database.in_transaction(processes.take_lease, "runs", self.name, ROUNDS * 2)

    def repair(self, age: float = stuck.OLD_ENOUGH) -> list[Stuck]:
        """Look for runs that nothing will move any more, and mend them."""
        found: list[Stuck] = []
        after: str | None = FIRST_ID
        while after is not None:
            some, after = self._repair_some(after, age)
            found += some
        return found

    def _repair_some(self, after: str, age: float) -> tuple[list[Stuck], str | None]:
        """A batch of runs: those that were mended, and where to go on."""
        database = self.host.database
        runs = database.read(stuck.look, after, BATCH, age)
        mended = [database.in_transaction(partial(stuck.repair, self.desk), run) for run in runs]
        found = [one for one in mended if one is not None]
        for one in found:
            self.host.events.emit(RunRepaired(one.run, one.repair))
            self.desk.host.wakeups.tell(READY)
        return found, runs[-1] if len(runs) == BATCH else None

    def prune(self, age: float | None = None) -> int:
        """Let old runs go; how many. By default as old as the settings say."""
        age = self.desk.host.settings.retention if age is None else age
        removed, more = 0, age is not None
        while more:
            gone, more = self.host.database.in_transaction(retention.prune, float(age or 0))
            removed += gone
        return removed

    def give_up_unknown(self) -> int:
        """Fail what has waited too long for somebody who knows its task; how much."""
        age = self.desk.host.settings.unknown_task_after
        if age is None:
            return 0
        found = self.host.database.read(unknown.look, age)
        given = self._give_up(found) if found else []
        for job in given:
            ended = (OutcomeKind.ERRORED.value, JobStatus.FAILED.value, Reason.UNKNOWN_TASK.value)
            told = AttemptSettled(job.job_id, job.task, job.queue, job.generation, *ended, 0.0, job.error)
            self.host.events.emit(told)
        if given:
            self.desk.host.wakeups.tell(ENDED)
        return len(given)

    def _give_up(self, found: Sequence[unknown.Place]) -> list[unknown.GivenUp]:
        try:
            return self.host.database.in_transaction(
                unknown.give_up, found, partial(closing.follow, self.desk)
            )
        except AdvancementFailed as error:
            error.spend()
            raise

    @property
    def _left(self) -> str:
        """The kind of timers that others must take: without a secret nothing can be signed."""
        return timers.REMIND_SIGNED if self.desk.host.settings.secret is None else ""

    def take_timer(self) -> bool:
        """Take a timer that is due, in a transaction of its own. False: there is none."""
        taken: list[Timer] = []
        try:
            return self.host.database.in_transaction(self.timer, taken)
        except signals.Overtaken:
            return True
        except Exception as error:
            if taken and not self.host.database.is_outage(error):
                self._put_off(taken[-1], error)
            raise

    def _advance(self) -> bool:
        try:
            return self.host.database.in_transaction(self.advancer.turn)
        except Exception as error:
            at = self.advancer.at
            if at is not None and not self.host.database.is_outage(error):
                self.host.database.in_transaction(expand.postpone, at, f"{type(error).__name__}: {error}")
                self._spend(str(self.advancer.run), error)
            raise

    def _put_off(self, timer: Timer, error: Exception) -> None:
        """Others first. What a run that is given up was to go on by is forgotten; what ends it is tried again.

        Then it will be done: for a run that is given up nothing is planned any more. And so it will if it was another
        that could not be planned, such as the parent of this one.
        """
        due, id, kind, run = timer
        goes_on = kind in timers.PLANNING
        given_up = self._spend(run, error) if goes_on or isinstance(error, AdvancementFailed) else None
        forgotten = goes_on and given_up == run
        self.host.database.in_transaction(timers.forget if forgotten else timers.postpone, due, id)

    def _spend(self, run: str, error: Exception) -> str | None:
        """What cannot be done for a run is tried a few times; after the last it is halted: the run that was."""
        failed = error if isinstance(error, AdvancementFailed) else self.desk.troubles.of(run, error)
        failed.spend()
        if not self.desk.troubles.given_up([failed.run_id]):
            return None
        self.host.database.in_transaction(partial(closing.give_up, self.desk), failed.run_id)
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
                trigger.start(self.desk, tx, run)
            case timers.SIGNAL:
                self._follow(tx, signals.deliver(self.desk, tx, run, data))
            case timers.ELEMENT_SIGNAL:
                self._follow(tx, signals.deliver(self.desk, tx, run, *from_json(data)))
            case timers.WAIT:
                ended = signals.time_out(self.desk, tx, run, job, data)
                self._follow(tx, ended)
                signals.confirm(self.desk, tx, run, data, ended)
            case timers.REMIND | timers.REMIND_SIGNED:
                reminders.remind(self.desk, tx, run, job, data, int(due))
            case timers.DEADLINE:
                deadline.exceed(self.desk, tx, run)
            case timers.INTERRUPT:
                deadline.interrupt(self.desk, tx, run)
            case timers.SWEEP:
                self._follow(tx, sweep.sweep(tx, run, data))
            case _:
                self._steer(tx, kind, run, data)
        return True

    def _steer(self, tx: Transaction, kind: str, run: str, data: str) -> None:
        match kind:
            case timers.CANCEL:
                steering.cancel_child(self.desk, tx, run, data)
            case timers.CHILDREN:
                steering.cancel_children(tx, run, data)
            case timers.GIVE_UP:
                self._follow(tx, giving_up.give_up(self.desk, tx, run, data))
            case timers.REQUEUE:
                steering.requeue(self.desk, tx, run, data)
            case timers.CHAIN:
                chains.decide(self.desk, tx, run)

    def _follow(self, tx: Transaction, ended: Sequence[Ended]) -> None:
        if ended:
            closing.follow(self.desk, tx, ended)
