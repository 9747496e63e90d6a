"""Schedules as their users have them: `app.schedules`, and a handle for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack

from penstock.app_services import AppServices
from penstock.database.transaction import Transaction
from penstock.database.user import connections
from penstock.errors import ActionRefused, ConfigurationError, DefinitionError
from penstock.middleware import Publication, publishing
from penstock.schedules import acts, rows
from penstock.schedules.decide import Overlap, TickOutcome, skipped
from penstock.schedules.declare import declare
from penstock.schedules.definition import PIPELINE, ScheduleDefinition, defined, with_headers
from penstock.schedules.rows import ScheduleRow, TickRow
from penstock.schedules.times import SECOND, first_ticks, instant_of
from penstock.values import parse
from penstock.values.ids import id_to_make
from penstock.values.lazy_import import Lazy
from penstock.values.parse import NAME_LENGTH, checked
from penstock.values.typed_json.json_text import loads

if TYPE_CHECKING:
    from sqlalchemy import util as greenlets

    from penstock.values.option_types import NewScheduleKeywords, ScheduleChanges
else:
    greenlets = Lazy("sqlalchemy.util")

P = ParamSpec("P")
R = TypeVar("R")
MOST = 100_000
LAST = 2**62


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick of a schedule, with its outcome."""

    nominal: datetime
    """Its nominal time, in the schedule's zone."""
    outcome: str
    """`fired`, `waiting`, `skipped_overlap`, `skipped_missed` or `skipped_paused`."""
    lateness: float | None
    """Seconds from its nominal time until it fired; None for a tick of a backfill."""
    job: Any = None
    run: Any = None
    count: int = 1
    """How many ticks this stands for; more than one: ticks from `first` to `nominal` that were skipped together."""
    first: datetime | None = None
    decided_at: datetime | None = None
    triggered: bool = False
    """True if an operator triggered it, not the clock."""

    @property
    def scheduled_for(self) -> datetime:
        return self.nominal


class Schedule:
    """A schedule: its definition, its ticks, and methods to change it."""

    def __init__(self, host: AppServices, name: str, row: ScheduleRow | None = None) -> None:
        self._host = host
        self.name = checked("name", name, lambda given: parse.text(given, NAME_LENGTH, without="\0\t\n"))
        self._row = row

    # what it is

    @property
    def id(self) -> str:
        return self._known.id

    @property
    def task(self) -> str:
        """The name of its task or pipeline."""
        return self._defined.target

    @property
    def kind(self) -> str:
        """`task` or `pipeline`."""
        return self._defined.kind

    @property
    def args(self) -> Any:
        """The arguments, as they are stored."""
        return loads(self._defined.payload)

    @property
    def cron(self) -> str | None:
        return self._defined.cron

    @property
    def every(self) -> timedelta | None:
        every = self._defined.every
        return None if every is None else timedelta(microseconds=every)

    @property
    def tz(self) -> str:
        return self._defined.zone

    @property
    def missed(self) -> str:
        return self._defined.missed

    @property
    def overlap(self) -> str:
        return self._defined.overlap

    @property
    def jitter(self) -> float:
        return self._defined.jitter / SECOND

    @property
    def start(self) -> datetime | None:
        return self._instant(self._defined.start)

    @property
    def end(self) -> datetime | None:
        return self._instant(self._defined.end)

    @property
    def paused(self) -> bool:
        return self._fresh.paused_at is not None

    @property
    def pause_reason(self) -> str | None:
        """Why it is paused; None if it is not."""
        row = self._fresh
        return None if row.paused_at is None else row.pause_why or ""

    @property
    def next_at(self) -> datetime | None:
        """The first tick that is not yet decided; None if none comes any more."""
        return self._instant(self._fresh.next_at)

    @property
    def declared(self) -> bool | None:
        """True if the code declares it; None: it was made at run time."""
        row = self._fresh
        return None if row.source != rows.CODE else row.orphaned_at is None

    @property
    def trouble(self) -> str | None:
        """Why it cannot be fired."""
        return self._fresh.trouble

    @property
    def description(self) -> str:
        """When it fires, in plain words."""
        return self._defined.spec(0).described()

    @property
    def _defined(self) -> ScheduleDefinition:
        if self._row is None and self.name in self._host.declared:
            return self._host.declared[self.name]
        return self._known.defined

    @property
    def _known(self) -> ScheduleRow:
        return self._row if self._row is not None else self._fresh

    @property
    def _fresh(self) -> ScheduleRow:
        self._host.prepare()
        self._row = self._host.database.read(self._read)
        return self._row

    def _read(self, tx: Transaction) -> ScheduleRow:
        row = rows.named(tx, self.name)
        if row is None:
            raise ActionRefused(f"there is no schedule {self.name!r}; `penstock schedules` lists them")
        return row

    def _instant(self, micros: int | None) -> datetime | None:
        return None if micros is None else instant_of(micros, self._defined.zone)

    def described(self) -> dict[str, Any]:
        """All fields as they were read, for tables and JSON."""
        row = self._known
        every, next_at = row.defined.every, row.next_at
        return {
            "name": self.name,
            "task": row.defined.target,
            "kind": row.defined.kind,
            "when": when(row.defined),
            "cron": row.defined.cron,
            "every": None if every is None else every / SECOND,
            "tz": row.defined.zone,
            "next": None if next_at is None else instant_of(next_at).isoformat(timespec="seconds"),
            "state": state(row),
            "pause_reason": row.pause_why,
            "missed": row.defined.missed,
            "overlap": row.defined.overlap,
            "jitter": row.defined.jitter / SECOND,
            "trouble": row.trouble,
        }

    # what becomes of it

    def next(self, count: int = 1) -> list[datetime]:
        """The next times at which it fires, in its zone."""
        checked("count", count, lambda given: parse.whole(given, 1, MOST))
        self._host.prepare()
        return self._host.database.read(self._next, count)

    async def next_async(self, count: int = 1) -> list[datetime]:
        return await self._host.bridge.run(self.next, count)

    def _next(self, tx: Transaction, count: int) -> list[datetime]:
        row = rows.named(tx, self.name)
        if row is None and self.name in self._host.declared:
            declared, now = self._host.declared[self.name], rows.clock(tx)
            return [instant_of(each, declared.zone) for each in first_ticks(declared.spec(now), now, count)]
        row = row if row is not None else self._read(tx)
        spec = row.defined.spec(row.created_at)
        after = row.now if row.next_at is None else max(row.now, row.next_at - 1)
        return [instant_of(each, row.defined.zone) for each in first_ticks(spec, after, count)]

    def ticks(self, limit: int = 50) -> list[Tick]:
        """The ticks so far with their outcomes, the latest first."""
        checked("limit", limit, lambda given: parse.whole(given, 1, MOST))
        self._host.prepare()
        return self._host.database.read(self._ticks, limit)

    async def ticks_async(self, limit: int = 50) -> list[Tick]:
        return await self._host.bridge.run(self.ticks, limit)

    def _ticks(self, tx: Transaction, limit: int) -> list[Tick]:
        row = self._read(tx)
        found = [*_passed(row), *rows.ticks_of(tx, row.id, LAST, limit)][:limit]
        return [self._tick(row, each) for each in found]

    def _tick(self, row: ScheduleRow, tick: TickRow) -> Tick:
        zone, is_run = row.defined.zone, row.defined.kind == PIPELINE
        started = None if tick.target is None else (self._host.run if is_run else self._host.job)(tick.target)
        return Tick(
            instant_of(tick.nominal, zone),
            tick.outcome,
            None if tick.lateness is None else tick.lateness / SECOND,
            None if is_run else started,
            started if is_run else None,
            tick.count,
            instant_of(tick.first, zone),
            instant_of(tick.decided_at, zone),
            tick.kind == rows.TRIGGER,
        )

    # what is done to it

    def pause(self, why: str | None = None) -> bool:
        """Pause: fire no more until resumed, also over deploys. False: it is paused already."""
        parse.words(why=why)
        return self._act(acts.pause, self.name, why)

    async def pause_async(self, why: str | None = None) -> bool:
        return await self._host.bridge.run(self.pause, why)

    def resume(self) -> bool:
        """Resume with the next tick; those that passed meanwhile are recorded as skipped. False: it is not paused."""
        return self._act(acts.resume, self.name)

    async def resume_async(self) -> bool:
        return await self._host.bridge.run(self.resume)

    def trigger(self) -> Any:
        """Start a job or run now, beside its ticks; returns it."""
        with self._publishing() as publication:
            kind, id = self._act(acts.trigger, self._host, self.name, id_to_make(), [], publication.headers)
            publication.ids = [id]
        if self._host.inline is not None:
            self._host.inline([])
        return self._host.run(id) if kind == PIPELINE else self._host.job(id)

    async def trigger_async(self) -> Any:
        door = self._host.bridge.run if self._host.inline is None else self._host.bridge.run_apart
        return await door(self.trigger)

    def backfill(self, start: datetime, end: datetime, overlap: str = Overlap.ALLOW.value) -> int:
        """Have the workers fire the ticks from `start` to `end` that have not fired; how many there are in all.

        `overlap` is its own: with "queue" they go one after the other.
        """
        low, high = checked("start", start, parse.instant), checked("end", end, parse.instant)
        if low > high:
            raise ConfigurationError(f"backfill({start}, {end}): it ends before it starts: exchange the two")
        policy = checked("overlap", overlap, lambda given: parse.one_of(given, Overlap))
        publication = Publication("backfill", self.name, 1)
        with publishing(self._host.enqueue_middlewares, publication):
            headers = publication.headers
            return self._act(acts.backfill, self.name, acts.new_backfill(), low, high, policy, headers)

    async def backfill_async(self, start: datetime, end: datetime, overlap: str = Overlap.ALLOW.value) -> int:
        return await self._host.bridge.run(self.backfill, start, end, overlap)

    def update(self, **given: Unpack[ScheduleChanges]) -> Schedule:
        """Change some fields: `s.update(cron="0 4 * * *")`. It holds from the next tick on."""
        self._act(acts.update, self._host, self.name, given)
        return self

    async def update_async(self, **given: Unpack[ScheduleChanges]) -> Schedule:
        return await self._host.bridge.run(self.update, **given)

    def delete(self) -> bool:
        """Delete it and its ticks; its jobs and runs go on. False: there is none.

        One that the code declares comes back with the next worker that starts: take it out of the code, or pause it.
        """
        self._host.prepare()
        self._row = None
        return self._host.database.in_transaction(acts.delete, self.name)

    async def delete_async(self) -> bool:
        return await self._host.bridge.run(self.delete)

    def _publishing(self) -> AbstractContextManager[Publication]:
        """Run the enqueue middlewares around the block that starts a job or run."""
        around = self._host.enqueue_middlewares
        if not around:
            return nullcontext(Publication("job", self.name, 1))
        kind = "run" if self._defined.kind == PIPELINE else "job"
        return publishing(around, Publication(kind, self._defined.target, 1))

    def _act(self, work: Callable[Concatenate[Transaction, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Do an act on the schedule; a declared schedule without a row gets its row first."""
        self._host.prepare()
        known = self._host.declared.get(self.name)

        def act(tx: Transaction) -> R:
            if known is not None and rows.named(tx, self.name) is None:
                declare(tx, self._host, known)
            return work(tx, *args, **kwargs)

        try:
            return self._host.database.in_transaction(act)
        finally:
            self._row = None

    def __repr__(self) -> str:
        return f"<schedule {self.name}>"


def when(one: ScheduleDefinition) -> str:
    """When it fires, in plain words, also if that cannot be read."""
    try:
        return one.spec(0).described()
    except ValueError as error:
        return f"{one.cron or one.every} ({error})"


def state(row: ScheduleRow) -> str:
    """The state of a schedule, in a few words."""
    if row.source == rows.CODE and row.orphaned_at is not None:
        return "not declared any more"
    if row.paused_at is not None:
        return f"paused: {row.pause_why}" if row.pause_why else "paused"
    if row.trouble is not None:
        return f"in trouble: {row.trouble}"
    return "ended" if row.next_at is None else "active"


def _passed(row: ScheduleRow) -> list[TickRow]:
    """Ticks that have passed while it is paused; they are recorded when it is resumed."""
    if row.paused_at is None or row.next_at is None or row.next_at > row.now:
        return []
    found = skipped(row.defined.spec(row.created_at), row.next_at, row.now)
    kinds = {True: rows.TICK, False: rows.SPAN}
    return [
        TickRow(
            each.nominal,
            kinds[each.number == 1],
            TickOutcome.SKIPPED_PAUSED.value,
            None,
            each.first,
            each.number,
            row.now - each.nominal,
            row.now,
        )
        for each in reversed(found)
    ]


class Schedules:
    """An app's schedules: `app.schedules(prefix="tenant:")`, `app.schedules.create(...)`."""

    def __init__(self, host: AppServices) -> None:
        self._host = host

    def __call__(self, prefix: str = "", limit: int = 100) -> list[Schedule]:
        """Those whose name begins so, by name."""
        return self.list(prefix, limit)

    def list(self, prefix: str = "", limit: int = 100) -> list[Schedule]:
        """Those whose name begins so, by name."""
        parse.words(prefix=prefix or None)
        checked("limit", limit, lambda given: parse.whole(given, 0))
        self._host.prepare()
        found = self._host.database.read(rows.listed, prefix, limit)
        return [Schedule(self._host, row.defined.name, row) for row in found]

    async def list_async(self, prefix: str = "", limit: int = 100) -> Sequence[Schedule]:
        return await self._host.bridge.run(self.list, prefix, limit)

    def create(
        self, target: Any, /, cron: str | None = None, **given: Unpack[NewScheduleKeywords]
    ) -> Schedule:
        """Make a schedule at run time, or give the one of that name another definition.

        `connection=`: in the caller's transaction. `redefine=False`: refuse another definition for its name.
        """
        one, how, connection = self._defined(target, cron, dict(given))
        connection = self._host.connection_for(connection)
        if connection is None:
            self._host.prepare()
            self._host.database.in_transaction(acts.write, self._host, one, *how)
        else:
            theirs = connections.recognize(connection)
            if theirs.is_async:
                raise ConfigurationError("this connection is an async one: use create_async")
            self._within(theirs, one, *how)
        return Schedule(self._host, one.name)

    async def create_async(
        self, target: Any, /, cron: str | None = None, **given: Unpack[NewScheduleKeywords]
    ) -> Schedule:
        one, how, connection = self._defined(target, cron, dict(given))
        if connection is None:
            return await self._host.bridge.run(self.create, target, cron, **given)
        theirs = connections.recognize(connection)
        if theirs.is_async:
            await greenlets.greenlet_spawn(self._within, theirs, one, *how)
        else:
            self._within(theirs, one, *how)
        return Schedule(self._host, one.name)

    def _within(
        self, theirs: connections.CallerConnection, one: ScheduleDefinition, paused: bool, may_redefine: bool
    ) -> None:
        tx = self._host.within(theirs)
        with theirs.kept_together():
            acts.write(tx, self._host, one, paused, may_redefine)
            if tx.leaves_chores:
                self._host.wakeups.call_housekeeping_within(tx)

    def _defined(
        self, target: Any, cron: str | None, given: dict[str, Any]
    ) -> tuple[ScheduleDefinition, tuple[bool, bool], object]:
        connection = given.pop("connection", None)
        how = bool(given.pop("paused", False)), bool(given.pop("redefine", True))
        one = defined(target, {"cron": cron, **given})
        if self._host.enqueue_middlewares:
            publication = Publication("schedule", one.name, 1, in_transaction=connection is not None)
            with publishing(self._host.enqueue_middlewares, publication):
                one = with_headers(one, publication.headers)
        return one, how, connection

    def __repr__(self) -> str:
        return "<schedules>"


def declared(
    host: AppServices, target: Any, cron: str | None, given: dict[str, Any]
) -> tuple[ScheduleDefinition, bool]:
    """The definition that `task.schedule(...)` declares, checked at once."""
    if given.get("connection") is not None:
        raise ConfigurationError(
            f"{target.name}.schedule(...) only declares: for one in your transaction, app.schedules.create(...)"
        )
    paused = bool(given.pop("paused", False))
    one = defined(target, {"cron": cron, **given})
    known = host.declared.get(one.name)
    if known is not None and known.revision != one.revision:
        raise DefinitionError(f"there are two schedules named {one.name!r}: give one of them another name=")
    return one, paused
