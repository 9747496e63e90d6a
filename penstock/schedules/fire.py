"""Fires due ticks: inserts their jobs and runs. Each tick fires once, with any number of workers.

A worker locks some due rows, skipping those that another has. In that one transaction it inserts the jobs and runs,
writes a row for every tick under (schedule, nominal time), and moves the schedules on. If it dies before the commit,
nothing has happened; after it, the rows are not due any more. The key of the ticks refuses a second row for the same
tick.

Every schedule has a boundary of its own: one that cannot be read, or that the database refuses, is put off with its
error in the row, and the others go on.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.app_services import AppServices
from penstock.database.boundary import Boundary
from penstock.database.transaction import Transaction
from penstock.schedules import backfill, rows
from penstock.schedules.decide import Decision, Overlap, TickOutcome, decide
from penstock.schedules.definition import PIPELINE
from penstock.schedules.launch import Launch
from penstock.schedules.rows import ScheduleRow
from penstock.schedules.times import SECOND, Spec
from penstock.telemetry.events import ScheduleFailed, TicksDecided

BATCH = 200
"""The most schedules that one transaction fires."""
LOOK_AGAIN = SECOND
"""Microseconds between two checks of a tick that waits for the one before it to end."""


class FiringReport(NamedTuple):
    """Events that a transaction has decided on, to be emitted once it is durable."""

    found: list[str]
    """The names of the schedules it has looked at."""
    decided: list[TicksDecided]
    failed: dict[str, ScheduleFailed | None]
    """By name, those that could not be fired; without an event, if the error is the one that the row has."""


class Firing:
    """The ticks of one app."""

    def __init__(self, host: AppServices) -> None:
        self.host = host
        self.boundary: Boundary[str] = Boundary(host.database, host.events, "the schedule")
        """How often each schedule has failed, so that it is tried at growing intervals."""

    def turn(self, *, waiting: bool = False) -> bool:
        """Fire some due ticks; True if something was decided.

        `waiting`: also check ticks that wait for the one before them.
        """
        template = rows.WAITING if waiting else rows.DUE
        try:
            told = self.host.database.in_transaction(self._fire, template, BATCH)
        except Exception as error:
            if self.host.database.is_outage(error):
                raise
            return self._one_by_one()
        return self._tell(told)

    def _one_by_one(self) -> bool:
        """Fire each schedule by itself, after one of them could not be written."""
        due = self.host.database.read(
            lambda tx: [rows.row_of(row) for row in tx.rows(_UNLOCKED, limit=BATCH)]
        )
        worked = False
        for row in due:
            try:
                told = self.host.database.in_transaction(self.fire_one, row.id)
            except Exception as error:
                if self.host.database.is_outage(error):
                    raise
                told = self.host.database.in_transaction(self._put_off, row, error)
            worked |= self._tell(told)
        return worked

    def _tell(self, told: FiringReport) -> bool:
        for name in told.failed:
            self.boundary.count_failure(name)
        self.boundary.handled([name for name in told.found if name not in told.failed])
        for event in (*told.decided, *told.failed.values()):
            if event is not None:
                self.host.events.emit(event)
        return bool(told.decided)

    def _fire(self, tx: Transaction, template: str, limit: int) -> FiringReport:
        tx.stage("fire")
        return self.fire_rows(tx, [rows.row_of(row) for row in tx.rows(template, limit=limit)])

    def fire_one(self, tx: Transaction, id: str) -> FiringReport:
        """One schedule, if it is still due."""
        tx.stage("fire")
        found = [rows.row_of(row) for row in tx.rows(rows.ONE, id=id)]
        return self.fire_rows(tx, [row for row in found if row.due_at is not None and row.due_at <= row.now])

    def fire_rows(self, tx: Transaction, found: Sequence[ScheduleRow]) -> FiringReport:
        """Decide about these locked schedules."""
        if not found:
            return FiringReport([], [], {})
        batch = Batch(self.host, tx, found)
        failed: dict[str, ScheduleFailed | None] = {}
        for row in found:
            try:
                batch.add(row)
            except Exception as error:
                if self.host.database.is_outage(error):
                    raise
                failed |= self._noted(tx, row, error)
        batch.write()
        return FiringReport([row.defined.name for row in found], batch.decided, failed)

    def _put_off(self, tx: Transaction, row: ScheduleRow, error: Exception) -> FiringReport:
        tx.stage("put_off_schedule")
        return FiringReport([row.defined.name], [], self._noted(tx, row, error))

    def _noted(self, tx: Transaction, row: ScheduleRow, error: Exception) -> dict[str, ScheduleFailed | None]:
        """Postpone a schedule, with its error in the row; returns the event if the error is a new one."""
        name, words = row.defined.name, f"{type(error).__name__}: {error}"[:1000].replace("\0", "")
        wait = int(self.boundary.next_pause(name) * SECOND)
        tx.run(rows.TROUBLE, id=row.id, trouble=words, wait=wait)
        return {name: None if row.trouble == words else ScheduleFailed(name, words)}


_UNLOCKED = rows.SELECT + "WHERE due_at <= {now} ORDER BY due_at, id LIMIT :limit"


class Batch:
    """The schedules of one transaction."""

    def __init__(self, host: AppServices, tx: Transaction, found: Sequence[ScheduleRow]) -> None:
        self.host = host
        self.tx = tx
        self.launch = Launch(host, tx)
        self.decided: list[TicksDecided] = []
        self._ticks: list[dict[str, object]] = []
        self._made_up: list[dict[str, object]] = []
        self._moved: dict[tuple[int | None, int | None], list[str]] = defaultdict(list)
        self._saved: list[DueSchedule] = []
        self._going = self._still_going(found)

    def _still_going(self, found: Sequence[ScheduleRow]) -> set[str]:
        """The jobs and runs that these schedules started before and that have not ended."""
        asked: dict[bool, list[str]] = {True: [], False: []}
        for row in found:
            ids = [row.last_id] if row.defined.overlap != Overlap.ALLOW else []
            if row.backfills and '"last"' in row.backfills:
                ids += [each.get("last") for each in row.pending]
            asked[row.defined.kind == PIPELINE] += [id for id in ids if id is not None]
        return rows.going(self.tx, asked[False], asked[True])

    def add(self, row: ScheduleRow) -> None:
        """Decide about one schedule. If that raises, nothing of it is written."""
        spec = row.defined.spec(row.created_at)
        one = DueSchedule(self, row, spec)
        if row.paused_at is None and not one.is_orphaned():
            one.fire_waiting()
            one.fire_due()
        if row.backfills:
            backfill.go_on(one)
        one.settle()
        with self.launch.all_or_none():
            for nominal, written, sent in one.launches:
                id = self.launch.add(one.row, nominal, written, sent)
                written(id)
                one.note_started(id)
            for id in one.cancelled:
                self.launch.cancel(row, id)
        self._ticks += one.ticks
        self._made_up += one.made_up
        self.decided += one.events()
        if one.is_plain:
            self._moved[one.row.next_at, one.row.due_at].append(row.id)
        else:
            self._saved.append(one)

    def is_going(self, id: str | None) -> bool:
        return id is not None and id in self._going

    def write(self) -> None:
        self.launch.write()
        self.tx.stage("fire_ticks")
        rows.write_ticks(self.tx, self._ticks)
        for tick in self._made_up:
            self.tx.run(rows.MADE_UP, **tick)
        for (next_at, due_at), ids in self._moved.items():
            self.tx.run(rows.MOVE, next_at=next_at, due_at=due_at, ids=sorted(ids))
        for one in self._saved:
            one.row.backfills = backfill.written(one.backfills)
            rows.save(self.tx, one.row)


class Launching(NamedTuple):
    """A job or run that a tick is to start, and the function to call with its id."""

    nominal: int
    written: Callable[[str], None]
    sent: Mapping[str, str] | None = None


class DueSchedule:
    """One schedule in a batch: what is decided about it, before anything is written."""

    def __init__(self, batch: Batch, row: ScheduleRow, spec: Spec) -> None:
        self.batch = batch
        self.before = row
        self.row = dataclasses.replace(row)
        self.spec = spec
        self.now = row.now
        self.ticks: list[dict[str, object]] = []
        self.made_up: list[dict[str, object]] = []
        self.launches: list[Launching] = []
        self.sent: Mapping[str, str] | None = None
        """The headers of the caller who has asked for a backfill."""
        self._runs: list[str] = []
        self.cancelled: list[str] = []
        self.backfills = row.pending
        self.look_at: list[int] = []
        """When the schedule must be looked at again, apart from its next tick."""
        self._fresh = False
        """True if the last job or run was started by this transaction."""
        self._counts: dict[TickOutcome, int] = defaultdict(int)
        self._late: list[int] = []
        self._orphaned = False

    @property
    def is_plain(self) -> bool:
        """True if only the time of the next tick changes."""
        tracks = self._fresh or self.before.backfills is not None
        return self.before.waiting_at == self.row.waiting_at and not tracks

    def is_orphaned(self) -> bool:
        """True if no worker has declared it for `schedule_grace`."""
        grace = int(self.batch.host.settings.schedule_grace * SECOND)
        declared = self.row.declared_at
        self._orphaned = self.row.source == rows.CODE and (declared is None or declared < self.now - grace)
        return self._orphaned

    @property
    def is_busy(self) -> bool:
        """True if the job or run of the tick before has not ended."""
        return self._fresh or self.batch.is_going(self.row.last_id)

    def fire_waiting(self) -> None:
        """Fire a tick that waited for the one before it, if that has ended."""
        nominal = self.row.waiting_at
        if nominal is None:
            return
        if self.is_busy and self.row.defined.overlap == Overlap.QUEUE:
            self.look_at.append(self.now + LOOK_AGAIN)
            return
        self.row.waiting_at = None
        self.make_up(nominal, TickOutcome.FIRED, late=True)
        self._late.append(self.now - nominal)

    def fire_due(self) -> None:
        """Fire or skip the ticks that are due by the clock."""
        if self.row.next_at is None or self.row.next_at > self.now:
            return
        decision: Decision = decide(self.spec, self.row.defined.policy, self.row.next_at, self.now)
        self.ticks += rows.ticks_skipped(self.row.id, decision.skipped, TickOutcome.SKIPPED_MISSED, self.now)
        self._counts[TickOutcome.SKIPPED_MISSED] += sum(each.number for each in decision.skipped)
        for nominal in decision.fired:
            gives_way = self.row.defined.overlap == Overlap.CANCEL and nominal != decision.fired[-1]
            self._fire(nominal, TickOutcome.SKIPPED_OVERLAP if gives_way else self._outcome())
        self.row.next_at = decision.next_at

    def _fire(self, nominal: int, outcome: TickOutcome) -> None:
        (tick,) = rows.ticks_fired(self.row.id, [(nominal, outcome, None)], self.now)
        self.ticks.append(tick)
        self._counts[outcome] += 1
        if outcome is TickOutcome.FIRED:
            self._late.append(self.now - nominal)
            self._start(nominal, lambda id: tick.update(target_id=id))
        elif outcome is TickOutcome.WAITING:
            self.row.waiting_at = nominal
            self.look_at.append(self.now + LOOK_AGAIN)

    def _outcome(self) -> TickOutcome:
        overlap = self.row.defined.overlap
        if overlap == Overlap.ALLOW or not self.is_busy:
            return TickOutcome.FIRED
        if overlap == Overlap.CANCEL:
            if self.row.last_id is not None and not self._fresh:
                self.cancelled.append(self.row.last_id)
                return TickOutcome.FIRED
            return TickOutcome.SKIPPED_OVERLAP
        if overlap == Overlap.QUEUE and self.row.waiting_at is None:
            return TickOutcome.WAITING
        return TickOutcome.SKIPPED_OVERLAP

    def _start(self, nominal: int, written: Callable[[str], object]) -> None:
        tracks = self.row.defined.overlap != Overlap.ALLOW
        self._fresh = tracks

        def note(id: str) -> None:
            written(id)
            if tracks:
                self.row.last_id = id

        self.launches.append(Launching(nominal, note))

    def make_up(
        self,
        nominal: int,
        outcome: TickOutcome,
        *,
        late: bool,
        start: Callable[[str], object] | None = None,
    ) -> None:
        """Change the outcome of a tick that has a row.

        `start`: called with the id of the job, instead of this schedule.
        """
        lateness = max(0, self.now - nominal) if late else None
        tick: dict[str, object] = {
            "id": self.row.id,
            "nominal": nominal,
            "outcome": outcome.value,
            "target": None,
            "lateness": lateness,
        }
        self.made_up.append(tick)
        self._counts[outcome] += 1
        if outcome is TickOutcome.FIRED:
            self.launch(nominal, lambda id: tick.update(target=id), start)

    def launch(
        self, nominal: int, written: Callable[[str], object], start: Callable[[str], object] | None
    ) -> None:
        if start is None:
            self._start(nominal, written)
            return

        def note(id: str) -> None:
            written(id)
            start(id)

        self.launches.append(Launching(nominal, note, self.sent))

    def record(self, nominal: int, outcome: TickOutcome, start: Callable[[str], object]) -> None:
        """Record a tick of the past that had no row, without a lateness."""
        (tick,) = rows.ticks_fired(self.row.id, [(nominal, outcome, None)], self.now, late=False)
        self.ticks.append(tick)
        self._counts[outcome] += 1
        if outcome is TickOutcome.FIRED:
            self.launch(nominal, lambda id: tick.update(target_id=id), start)

    def settle(self) -> None:
        """Compute when the schedule must be looked at next."""
        row, looks = self.row, list(self.look_at)
        if row.paused_at is None and not self._orphaned:
            looks += [row.next_at] if row.next_at is not None else []
        row.due_at = min(looks, default=None)
        if self._orphaned:
            self.batch.tx.run(rows.ORPHAN, id=row.id)

    def note_started(self, id: str) -> None:
        if self.row.defined.kind == PIPELINE:
            self._runs.append(id)

    def events(self) -> list[TicksDecided]:
        return [self._event(outcome, count) for outcome, count in self._counts.items() if count]

    def _event(self, outcome: TickOutcome, count: int) -> TicksDecided:
        name, target = self.row.defined.name, self.row.defined.target
        if outcome is not TickOutcome.FIRED:
            return TicksDecided(name, target, outcome.value, count, 0.0)
        late = max(self._late, default=0) / SECOND
        return TicksDecided(name, target, outcome.value, count, late, tuple(self._runs))
