"""The rows of runs, as planning needs them. Reading locks nothing: a mode just changed is noticed by the claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from penstock.database.transaction import Transaction
from penstock.pipelines.changes import RunMode
from penstock.pipelines.desk import Desk, Origin
from penstock.pipelines.plan import RunFacts
from penstock.pipelines.wiring import Wiring, wiring_of
from penstock.values.jsontext import loads

MODES = "SELECT id, mode, paused_at FROM {runs} WHERE id {among:ids:uuid}"
ORIGINS = """
SELECT id, mode, paused_at, pipeline, definition, args, revived_from, only_step FROM {runs} WHERE id {among:ids:uuid}
"""
DEFINITION = "SELECT text FROM {definitions} WHERE hash = :hash"


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
    _params: Mapping[str, object] | None = None

    @property
    def facts(self) -> RunFacts:
        return RunFacts(self.mode, self.max_fanout)

    def param(self, name: str) -> object:
        if self._params is None:
            self._params = cast("dict[str, object]", loads(self.args))
        return self._params.get(name)


def views(desk: Desk, tx: Transaction, ids: Iterable[str]) -> dict[str, RunView]:
    """The runs with these ids, at most two queries for all of them; those that are gone are left out."""
    trace = desk.trace(tx)
    wanted = sorted(set(ids) - trace.modes.keys())
    known = [id for id in wanted if desk.origin(id) is not None]
    if known:
        trace.modes.update({id: (mode, paused is not None) for id, mode, paused in tx.rows(MODES, ids=known)})
    unknown = [id for id in ids if id not in trace.modes or desk.origin(id) is None]
    origins: dict[str, Origin] = {}
    if unknown:
        for id, mode, paused, *lasting in tx.rows(ORIGINS, ids=sorted(set(unknown))):
            trace.modes.setdefault(id, (mode, paused is not None))
            origins[id] = Origin(*lasting)
            desk.remember(id, origins[id])
    found = {}
    for id in ids:
        origin = origins.get(id) or desk.origin(id)
        if origin is not None and id in trace.modes:
            mode, paused = trace.modes[id]
            found[id] = view(desk, tx, id, origin, RunMode(mode), paused)
    return found


def view(
    desk: Desk,
    tx: Transaction,
    id: str,
    origin: Origin,
    mode: RunMode = RunMode.RUNNING,
    paused: bool = False,
) -> RunView:
    wiring = wiring_for(desk, tx, origin.definition)
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
    )


def wiring_for(desk: Desk, tx: Transaction, definition: str) -> Wiring:
    """A stored definition, read once per process."""
    found = desk.wirings.get(definition)
    if found is None:
        row = tx.row(DEFINITION, hash=definition)
        assert row is not None, f"definition {definition} is missing"
        found = desk.wirings[definition] = wiring_of(row[0])
    return found
