"""What must be true of rows and their claims: the history of the user's tables, change by change.

A claim is a token on a row. Who may put it there, move its end, take it away, and what may be written under it are
the rules here. The numbers are those of the invariants, which hold for rows as for jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.server import time_text
from tests.simulation.story import Story
from tests.simulation.workloads.row_tables import TOLD
from tests.simulation.world import SECOND, START

LEASE = 6 * SECOND
SWEPT_AFTER = 10 * LEASE
"""What the sweeper takes for orphaned."""
SLOWEST = 60 * SECOND
"""So long a transaction may take at most: the clocks of all processes run on meanwhile."""
BUSY = 1_100_000
"""Who finds related rows busy looks again after a second; that forgets nothing."""
SPAN = len(TOLD) + 1
RECONCILER = {"sim_fleets": "fleets", "sim_instances": "instances", "sim_tickets": "orders"}
STANDING = "SELECT id, lock_token, lock_owner, lock_expires_at FROM {table} WHERE lock_token IS NOT NULL"

Place = tuple[str, int]
Claim = tuple[int, str, int]


class Row(NamedTuple):
    token: int | None
    expires: str | None
    owner: str | None
    due: str
    attempts: int
    crashes: int
    visits: int
    requests: int
    seen: int
    parent: int | None


@dataclass(slots=True)
class RowModel:
    """The rows as they are, and what is known of every claim."""

    wrong: list[str] = field(default_factory=list)
    rows: dict[Place, Row] = field(default_factory=dict)
    given: dict[int, int] = field(default_factory=dict)
    """Every token, and the transaction that gave it."""
    holder: dict[int, str] = field(default_factory=dict)
    """The host that holds under it."""
    recovered: dict[Claim, bool] = field(default_factory=dict)
    deadline: dict[Claim, str] = field(default_factory=dict)
    visited: set[Claim] = field(default_factory=set)
    jumped: set[str] = field(default_factory=set)
    """Hosts whose own clock leapt: they believe that their leases are over."""
    lost: set[int] = field(default_factory=set)
    """Tokens whose holder believes, by its own clock, that their lease is over: it has nothing to give back."""
    kept: set[int] = field(default_factory=set)
    """What hosts held when they left."""
    ended: dict[Claim, str] = field(default_factory=dict)
    """How its handler ended."""
    tx: int = 0
    at: int = 0
    who: str = ""

    def say(self, what: str) -> None:
        self.wrong.append(f"{(self.at - START) / SECOND:.3f} {self.who}: {what}")

    @property
    def host(self) -> str:
        return self.who.partition("/")[0]

    def read(self, history: list[tuple[Any, ...]]) -> None:
        for at, who, kind, *facts in history:
            self.at, self.who = at, who
            if kind == "commit":
                self.tx = facts[0]
                self._commit([fact for fact in facts[1] if fact[1] == "row"])
            elif kind == "left":
                self._left(facts[0])
            elif kind == "jumped":
                self.jumped.add(facts[0])
            elif kind in ("closed", "went home"):
                self._closed(facts[0])
            elif kind == "lost lease":
                self.lost.add(facts[0])
            elif kind == "visit":
                self._visit((facts[2], facts[0], facts[1]), facts[3])
            elif kind.startswith("visit "):
                self.ended[facts[2], facts[0], facts[1]] = kind.removeprefix("visit ")

    def _left(self, host: str) -> None:
        """By its own clock, which never trusts a lease for as long as the database does, it held these."""
        soon = time_text(self.at + LEASE // 3)
        held = {
            row.token for row in self.rows.values() if row.token is not None and (row.expires or "") > soon
        }
        if host not in self.jumped:
            self.kept |= {token for token in held - self.lost if self.holder.get(token) == host}

    def _closed(self, hosts: list[str]) -> None:
        """Who stops in order gives everything back."""
        for place, row in self.rows.items():
            if row.token in self.kept and self.holder.get(row.token or 0) in hosts:
                self.say(f"{place} stays locked for {row.owner}, whose process has stopped in order")

    def _visit(self, claim: Claim, recovered: bool) -> None:
        if claim in self.visited:
            self.say(f"{claim} has two handlers [1]")
        self.visited.add(claim)
        if self.recovered.get(claim, recovered) != recovered:
            self.say(f"{claim}: recovered is {recovered}, which is not true")

    def _commit(self, facts: list[tuple[Any, ...]]) -> None:
        changes = list(self._changes(facts))
        for place, before, after in changes:
            if after is None:
                self.rows.pop(place, None)
            else:
                self.rows[place] = after
                if before is not None:
                    self._change(place, before, after)
        for place, before, after in changes:
            self._family(place, before, after)

    def _changes(self, facts: list[tuple[Any, ...]]) -> Iterator[tuple[Place, Row | None, Row | None]]:
        """Of each row, what it was and what it is: once for its settling, once for its being taken again."""
        pending: dict[Place, tuple[Row | None, Row | None]] = {}
        for at, _, table, id, *values in facts:
            self.at = at
            before = Row(*values[:SPAN]) if values[3] is not None else None
            after = Row(*values[SPAN:]) if values[SPAN + 3] is not None else None
            place = (table, id)
            taken = after is not None and after.token and (before is None or after.token != before.token)
            if taken and place in pending:
                yield place, *pending.pop(place)
            pending[place] = (pending.get(place, (before, None))[0], after)
        for place, change in pending.items():
            yield place, *change

    def _change(self, place: Place, old: Row, new: Row) -> None:
        if new.token is not None and new.token != old.token:
            self._taken(place, old, new)
        elif new.token is not None and new.expires != old.expires:
            self._renewed(place, old, new)
        elif old.token is not None and new.token is None:
            self._let_go(place, old, new)
        elif new.visits != old.visits:
            self.say(f"{place} was written to without a claim [3]")

    def _taken(self, place: Place, old: Row, new: Row) -> None:
        now = time_text(self.at)
        if old.token is not None and (old.expires or "") > now:
            self.say(f"{place} was taken from {old.owner}, whose lease lasts until {old.expires} [1]")
        assert new.token is not None
        if self.given.setdefault(new.token, self.tx) != self.tx:
            self.say(f"{place}: token {new.token} is given again [2]")
        if new.expires == old.expires:
            return  # a writer bars the way to one who is gone; it holds nothing
        self.holder[new.token] = self.host
        claim = (new.token, *place)
        self.recovered[claim] = new.crashes > 0
        if new.crashes - old.crashes not in (0, int(old.token is not None)):
            self.say(f"{place} counts {new.crashes} crashes after {old.crashes}, and no process died [11]")
        self.deadline[claim] = new.due
        if not time_text(self.at - SLOWEST) < (new.expires or "") <= time_text(self.at + LEASE):
            self.say(f"{place} is taken until {new.expires}, by another clock than the database's [8]")
        if new.visits != old.visits:
            self.say(f"{place} was written to by the process that took it [3]")

    def _renewed(self, place: Place, old: Row, new: Row) -> None:
        if self.holder.get(new.token or 0) != self.host:
            self.say(f"{place} was renewed by a process that does not hold it [3]")
        if not (old.expires or "") < (new.expires or "") <= time_text(self.at + LEASE):
            self.say(f"{place}: renewed from {old.expires} to {new.expires} [8]")
        if new.visits != old.visits:
            self.say(f"{place} was written to and stays held [3]")

    def _let_go(self, place: Place, old: Row, new: Row) -> None:
        """The holder applies or gives back; another process only sweeps up what was left long ago."""
        assert old.token is not None
        orphaned = (old.expires or "") < time_text(self.at - SWEPT_AFTER)
        if self.holder.get(old.token) != self.host and not orphaned:
            self.say(f"{place} was let go by a process that does not hold it [3]")
        main = place if ":" not in (old.owner or "") else self._main_of(old.owner or "")
        how = self.ended.get((old.token, *main))
        if new.visits != old.visits and (new.visits != old.visits + 1 or how != "done"):
            self.say(f"{place}: visits go from {old.visits} to {new.visits}, its handler: {how} [3]")
        if main != place:
            return
        if new.attempts > old.attempts and how == "done" and not self._may_be_late(place):
            self.say(f"{place} counts a failure that there was not [11]")
        if how == "raised" and new.due == old.due == self.deadline.get((old.token, *place)):
            self.say(f"{place} failed and is not put off")
        asked = old.due != self.deadline.get((old.token, *place))
        if asked and new.due > max(old.due, time_text(self.at + BUSY)) and new.visits != old.visits:
            self.say(f"{place}: a caller asked for a visit meanwhile, and that is forgotten")

    def _may_be_late(self, place: Place) -> bool:
        """It has a timeout: it may have been settled before it was done."""
        return place[0] != "sim_tickets"

    def _main_of(self, owner: str) -> Place:
        name, _, id = owner.partition(":")
        return next(table for table, known in RECONCILER.items() if known == name), int(id)

    def _family(self, place: Place, before: Row | None, after: Row | None) -> None:
        """Related rows come and go with the row they were taken for."""
        old, new = before and before.token, after and after.token
        table, id = place
        me = f"{RECONCILER[table]}:{id}"
        claimed = after is not None and new and new != old and new in self.holder
        if after is not None and claimed and after.owner == RECONCILER[table]:
            for other in self._needed(place, after):
                row = self.rows.get(other)
                if row is not None and (row.token, row.owner) != (new, me):
                    self.say(f"{place} was taken without {other}, which is {row.owner}'s [1]")
        if old and new is None:
            for other, row in self.rows.items():
                if row.token == old and row.owner == me:
                    self.say(f"{other} stays locked for {place}, which is free")

    def _needed(self, place: Place, row: Row) -> Iterator[Place]:
        if place[0] == "sim_fleets":
            yield from (
                other
                for other, child in self.rows.items()
                if other[0] == "sim_instances" and child.parent == place[1]
            )
        elif place[0] == "sim_tickets" and row.parent is not None:
            yield "sim_instances", row.parent


def check(story: Story) -> list[str]:
    model = RowModel()
    for fact in story.facts("rows"):
        for table, id, *values in fact[3]:
            model.rows[table, id] = Row(*values)
    model.read(story.history)
    return [*model.wrong, *_lasting(story)]


def _lasting(story: Story) -> Iterator[str]:
    """No process keeps a row for ever."""
    for table in RECONCILER:
        for id, _, owner, expires in story.rows(STANDING.format(table=table)):
            if str(expires) < time_text(story.model.at - SWEPT_AFTER - 3 * LEASE):
                yield f"{table} {id} is still locked for {owner}, who is gone since {expires}"
