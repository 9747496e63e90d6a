"""The rows of runs, as planning needs them. Reading locks nothing: a mode just changed is noticed by the claim.

A definition changes only while every step of the run that has not ended is locked (see `migrating`). So whoever holds
one of them, and reads the definition after that, has the one that counts until the transaction ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.errors import ArgumentError, PenstockError
from penstock.pipelines.changes import RunMode
from penstock.pipelines.desk import Desk, Mode, Origin, Trace
from penstock.pipelines.plan import RunFacts
from penstock.pipelines.wiring import Wiring, wiring_of
from penstock.values.jsontext import loads

MODES = "SELECT id, mode, paused_at, definition FROM {runs} WHERE id {among:ids:uuid}"
COLUMNS = "id, mode, paused_at, pipeline, definition, args, revived_from, only_step, redefined, parent_job_id"
ORIGINS = f"SELECT {COLUMNS} FROM {{runs}} WHERE id {{among:ids:uuid}}"
# By the receipt of the claim, which is written by the statement before this one. For PostgreSQL, which has claims that
# are one statement.
OF_CLAIM = f"""
SELECT {COLUMNS} FROM {{runs}} WHERE id IN (
  SELECT j.run_id FROM {{claims}} c CROSS JOIN LATERAL json_array_elements_text(CAST(c.job_ids AS json)) AS held(id)
  JOIN {{jobs}} j ON j.id = CAST(held.id AS uuid) WHERE c.token = :token)
"""
DEFINITION = "SELECT text FROM {definitions} WHERE hash = :hash"


class Unreadable(PenstockError):
    """A stored definition that is gone, or that this version does not understand."""


@dataclass(slots=True)
class RunView:
    """A run, as this transaction sees it; `mode` follows what the transaction itself decides."""

    id: str
    pipeline: str
    definition: str
    wiring: Wiring
    args: str
    mode: RunMode = RunMode.RUNNING
    paused: bool = False
    max_fanout: int | None = None
    revived_from: str | None = None
    only: str | None = None
    redefined: bool = False
    is_child: bool = False
    reserved: int | None = None
    """Steps that expands have been granted; known once it was asked for (see `budget`)."""
    _params: Mapping[str, object] | None = None

    @property
    def facts(self) -> RunFacts:
        most = self.wiring.definition.max_steps
        left = None if most is None else most - self.wiring.inside(None) - (self.reserved or 0)
        return RunFacts(self.mode, self.max_fanout, left)

    def param(self, name: str) -> object:
        if self._params is None:
            self._params = cast("dict[str, object]", loads(self.args))
        if name not in self._params:
            # Never None instead: the run would go on, with what nobody has given it.
            raise ArgumentError(
                self.pipeline, "nothing is stored for this parameter. Revive the run with args=", name
            )
        return self._params[name]


def views(desk: Desk, tx: Transaction, ids: Iterable[str]) -> dict[str, RunView]:
    """The runs with these ids, at most two queries for all of them; those that are gone are left out."""
    trace = desk.trace(tx)
    if trace.foreseen is not None:
        foreseen, trace.foreseen = trace.foreseen(), None
        for row in foreseen:
            _learn(desk, trace, row)
    known = {id: origin for id in ids if (origin := desk.origin(id)) is not None}
    wanted = sorted([id for id in known if id not in trace.modes])
    if wanted:
        rows = tx.rows(MODES, ids=wanted)
        trace.modes.update({id: Mode(mode, paused is not None, now) for id, mode, paused, now in rows})
    origins = {id: known[id] for id in known if id in trace.modes and _fits(known[id], trace.modes[id])}
    unknown = sorted(set(ids) - origins.keys())
    if unknown:
        for row in tx.rows(ORIGINS, ids=unknown):
            origins[row[0]] = _learn(desk, trace, row)
    return {id: _seen(desk, tx, id, origins[id], trace.modes[id]) for id in ids if id in origins}


def foresee(desk: Desk, tx: Transaction, token: int) -> None:
    """Ask for the runs of the claim that was sent just before."""
    desk.trace(tx).foreseen = tx.early(OF_CLAIM, token=token)


def _learn(desk: Desk, trace: Trace, row: Row) -> Origin:
    id, mode, paused, *lasting = row
    origin = Origin(*lasting)
    seen = trace.modes.get(id) or Mode(mode, paused is not None, "")
    trace.modes[id] = seen._replace(definition=origin.definition)
    desk.remember(id, origin)
    return origin


def _fits(origin: Origin, now: Mode) -> bool:
    """What is remembered of the run is of the definition that it has now."""
    return origin.definition == now.definition


def _seen(desk: Desk, tx: Transaction, id: str, origin: Origin, now: Mode) -> RunView:
    return view(desk, tx, id, origin, RunMode(now.mode), now.paused)


def view(
    desk: Desk,
    tx: Transaction,
    id: str,
    origin: Origin,
    mode: RunMode = RunMode.RUNNING,
    paused: bool = False,
) -> RunView:
    try:
        wiring = wiring_for(desk, tx, origin.definition)
    except Unreadable as error:
        raise desk.troubles.of(id, error) from error
    limit = desk.host.settings.max_fanout
    return RunView(
        id,
        origin.pipeline,
        origin.definition,
        wiring,
        origin.args,
        mode,
        paused,
        limit,
        origin.revived_from,
        origin.only,
        bool(origin.redefined),
        origin.parent_job is not None,
    )


def wiring_for(desk: Desk, tx: Transaction, definition: str) -> Wiring:
    """A stored definition, read once per process."""
    found = desk.wirings.get(definition)
    if found is None:
        row = tx.row(DEFINITION, hash=definition)
        if row is None:
            raise Unreadable(f"definition {definition} is missing")
        try:
            found = desk.wirings[definition] = wiring_of(row[0])
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(f"definition {definition} cannot be read ({error})") from error
    return found
