"""The rows of runs, as planning needs them. Reading locks nothing: a mode just changed is noticed by the claim.

A definition changes only while every step of the run that has not ended is locked (see `migrate`). So a caller that
holds one of them, and reads the definition after that, has the one that counts until the transaction ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, cast

from penstock.database.dialect import Row
from penstock.database.transaction import Transaction
from penstock.errors import ArgumentError, PenstockError
from penstock.pipelines.advance.state import EngineState, Mode, RunHeader, TransactionState
from penstock.pipelines.model.definition import DamagedDefinition, Definition
from penstock.pipelines.model.wiring import Wiring, wiring_of
from penstock.pipelines.plan.changes import Fan, RunMode
from penstock.pipelines.plan.plan import RunFacts
from penstock.values.typed_json.json_text import loads

MODES = "SELECT id, mode, paused_at, definition FROM {runs} WHERE id {among:ids:uuid}"
COLUMNS = "id, mode, paused_at, pipeline, definition, args, revived_from, only_step, redefined, parent_job_id"
COLUMNS += ", scheduled_for, forked_from"
ORIGINS = f"SELECT {COLUMNS} FROM {{runs}} WHERE id {{among:ids:uuid}}"
# By the receipt of the claim, which is written by the statement before this one. For PostgreSQL, which has claims that
# are one statement. By lists, not by joins: those look up each one in an index, whatever the planner believes.
OF_CLAIM = f"""
SELECT {COLUMNS} FROM {{runs}} WHERE id = ANY(ARRAY(SELECT run_id FROM {{jobs}} WHERE id = ANY(ARRAY(
  SELECT CAST(held.id AS uuid) FROM {{claims}} c
  CROSS JOIN LATERAL json_array_elements_text(CAST(c.job_ids AS json)) AS held(id) WHERE c.token = :token))))
"""
CERTIFY = "UPDATE {runs} {by_key} SET lock_count = COALESCE(lock_count, 0) + 1 WHERE id {among:ids:uuid}"
"""For `Transaction.certify`: of runs that are locked, and whose own columns need not change."""
DEFINITION = "SELECT text FROM {definitions} WHERE hash = :hash"


RESTORE_DEFINITION = (
    "Put its row back from a backup. Where the code of the pipeline is still the same, it is enough that there is no "
    "such row: a worker with that code goes on without it"
)


class HasDefinition(Protocol):
    """A pipeline of the app."""

    @property
    def definition(self) -> Definition: ...


FindPipeline = Callable[[str], HasDefinition | None]
"""Finds a pipeline of the app by its name."""


def no_pipeline(_name: str) -> None:
    """Finds nothing: for a database without its app."""


class Unreadable(PenstockError):
    """A stored definition that is gone, or that this version does not understand."""


def unreadable(definition: str, error: DamagedDefinition | None = None) -> Unreadable:
    """The error of a definition that cannot be read; without an error of its own it is missing."""
    what = "is missing" if error is None else f"cannot be read ({error.__cause__})"
    return Unreadable(f"definition {definition} {what}. {RESTORE_DEFINITION}")


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
    scheduled_for: int | None = None
    forked: bool = False
    reserved: int | None = None
    """Steps that expands have been granted; known once it was asked for (see `read_reserved`)."""
    _params: Mapping[str, object] | None = None

    @property
    def is_limited(self) -> bool:
        """True if it counts against `max_running`. A child does not: the parent that waits for it may count."""
        return self.wiring.definition.max_running is not None and not self.is_child

    @property
    def facts(self) -> RunFacts:
        most = self.wiring.definition.max_steps
        left = None if most is None else most - self.wiring.inside(None) - (self.reserved or 0)
        return RunFacts(self.mode, self.max_fanout, left)

    def param(self, name: str) -> object:
        if self._params is None:
            self._params = cast("dict[str, object]", loads(self.args))
        if name not in self._params:
            # Never None instead: the run would go on with an argument that no caller gave.
            raise ArgumentError(
                self.pipeline, "nothing is stored for this parameter. Revive the run with args=", name
            )
        return self._params[name]


def views(engine_state: EngineState, tx: Transaction, ids: Iterable[str]) -> dict[str, RunView]:
    """The runs with these ids, at most two queries for all of them; those that are gone are left out."""
    trace = engine_state.trace(tx)
    if trace.prefetched is not None:
        prefetched, trace.prefetched = trace.prefetched(), None
        for row in prefetched:
            _learn(engine_state, trace, row)
    known = {id: origin for id in ids if (origin := engine_state.origin(id)) is not None}
    wanted = sorted([id for id in known if id not in trace.modes])
    if wanted:
        rows = tx.rows(MODES, ids=wanted)
        trace.modes.update({id: Mode(mode, paused is not None, now) for id, mode, paused, now in rows})
    origins = {id: known[id] for id in known if id in trace.modes and _fits(known[id], trace.modes[id])}
    unknown = sorted(set(ids) - origins.keys())
    if unknown:
        for row in tx.rows(ORIGINS, ids=unknown):
            origins[row[0]] = _learn(engine_state, trace, row)
    return {id: _seen(engine_state, tx, id, origins[id], trace.modes[id]) for id in ids if id in origins}


def prefetch_runs(engine_state: EngineState, tx: Transaction, token: int) -> None:
    """Ask for the runs of the claim that was sent just before."""
    engine_state.trace(tx).prefetched = tx.send_ahead(OF_CLAIM, token=token)


def _learn(engine_state: EngineState, trace: TransactionState, row: Row) -> RunHeader:
    id, mode, paused, *lasting = row
    origin = RunHeader(*lasting)
    seen = trace.modes.get(id) or Mode(mode, paused is not None, "")
    trace.modes[id] = seen._replace(definition=origin.definition)
    engine_state.remember(id, origin)
    return origin


def _fits(origin: RunHeader, now: Mode) -> bool:
    """True if the remembered header has the definition that the run has now."""
    return origin.definition == now.definition


def _seen(engine_state: EngineState, tx: Transaction, id: str, origin: RunHeader, now: Mode) -> RunView:
    return view(engine_state, tx, id, origin, mode_of(engine_state, id, now.mode), now.paused)


def mode_of(engine_state: EngineState, id: str, text: str) -> RunMode:
    """The mode of a run; one that this version does not know is an error of that run alone."""
    try:
        return RunMode(text)
    except ValueError:
        raise engine_state.planning_failures.of(
            id, Unreadable(f"its mode is {text!r}, which means nothing here")
        ) from None


def view(
    engine_state: EngineState,
    tx: Transaction,
    id: str,
    origin: RunHeader,
    mode: RunMode = RunMode.RUNNING,
    paused: bool = False,
) -> RunView:
    try:
        wiring = wiring_for(engine_state, tx, origin.definition, origin.pipeline)
    except Unreadable as error:
        raise engine_state.planning_failures.of(id, error) from error
    limit = engine_state.host.settings.max_fanout
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
        origin.scheduled_for,
        origin.forked_from is not None,
    )


def wiring_for(
    engine_state: EngineState, tx: Transaction, definition: str, pipeline: str | None = None
) -> Wiring:
    """A stored definition, read once per process; if it is lost, the pipeline's own, if that is the same."""
    found = engine_state.wirings.get(definition)
    if found is None:
        row = tx.row(DEFINITION, hash=definition)
        text = own_text(engine_state.host.find_pipeline, definition, pipeline) if row is None else row[0]
        if text is None:
            raise unreadable(definition)
        try:
            found = engine_state.wirings[definition] = wiring_of(text)
        except DamagedDefinition as error:
            raise unreadable(definition, error) from error
    return found


def own_text(find_pipeline: FindPipeline, definition: str, pipeline: str | None) -> str | None:
    """The definition that the app's own pipeline has now, if it is this one: it stands in for a row that is lost."""
    own = find_pipeline(pipeline) if pipeline is not None else None
    with suppress(Exception):  # the function of a pipeline may raise anything
        return own.definition.text if own is not None and own.definition.hash == definition else None
    return None


# How many steps a run may have in all (`max_steps`). Only expands make more than the definition shows.
#
# When an expand begins, all steps that its elements will have are reserved, on the run's row. Planning reads that
# number without a lock and refuses what is too much; the row, locked last as ever, decides: expands at the same moment
# may each have seen room for themselves, and then the run is halted. Runs without the limit are not concerned.

RESERVED = "SELECT id, reserved FROM {runs} WHERE id {among:ids:uuid}"


class BudgetChange(Protocol):
    """Changes of a run's budget of steps, to be written to its row."""

    reserved: int


def read_reserved(tx: Transaction, runs: Sequence[RunView]) -> None:
    """Read what was reserved by those of these runs that have a limit, once a transaction."""
    limited = {run.id: run for run in runs if _limit(run) is not None and run.reserved is None}
    if limited:
        for id, reserved in tx.rows(RESERVED, ids=sorted(limited)):
            limited[str(id)].reserved = int(reserved or 0)


def reserve(run: RunView, change: Callable[[RunView], BudgetChange], fan: Fan) -> None:
    """An expand begins: its steps are spoken for."""
    if _limit(run) is not None:
        steps = fan.width * run.wiring.inside(fan.node)
        run.reserved = (run.reserved or 0) + steps
        change(run).reserved += steps


def is_exceeded(run: RunView, reserved: int | None) -> bool:
    most = _limit(run)
    return most is not None and (reserved or 0) + run.wiring.inside(None) > most


def _limit(run: RunView) -> int | None:
    return run.wiring.definition.max_steps


# Labels of runs: words by which people find them again. Given at the trigger; a revival and a re-run have them too.

OF_RUN = "SELECT label FROM {run_labels} WHERE run_id = :run ORDER BY label"
COPY = "INSERT INTO {run_labels} (label, run_id) SELECT label, :new FROM {run_labels} WHERE run_id = :old"


def of_run(tx: Transaction, run: str) -> list[str]:
    """In the order of the alphabet."""
    return sorted(str(label) for (label,) in tx.rows(OF_RUN, run=run))


def copy_labels(tx: Transaction, old: str, new: str) -> None:
    """A run that goes on from another, or repeats it, is found by the same words."""
    tx.run(COPY, new=new, old=old)
