"""A run as its users see it: its status, its result, its steps, and methods to signal it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from typing_extensions import TypeVar

from penstock.app_services import AppServices
from penstock.context import running
from penstock.errors import PenstockError, ResultTimeout, RunFailed
from penstock.job import AttemptRecord, attempt_of, instant
from penstock.middleware import Publication, publishing
from penstock.pipelines.advance import read as reading
from penstock.pipelines.advance import values
from penstock.pipelines.advance.finish import follow
from penstock.pipelines.advance.read import RunStatusRow
from penstock.pipelines.advance.run_rows import RunView, view, wiring_for
from penstock.pipelines.advance.state import RunHeader
from penstock.pipelines.advance.values import Values
from penstock.pipelines.lifecycle import signal_rows, signals
from penstock.pipelines.lifecycle.reminders import issue, secrets_of
from penstock.pipelines.model.expressions import Path, path_of, path_text
from penstock.pipelines.model.graph_view import Graph, graph_of
from penstock.pipelines.plan.changes import RunMode
from penstock.pipelines.run_control import RunControl, RunDefinition
from penstock.queue.wakeups import RUN_ENDED
from penstock.result_wait import ResultWaiter
from penstock.run_context import RunContext
from penstock.updates import RunUpdate, UpdateStream
from penstock.values import parse
from penstock.values.parse import checked
from penstock.values.status import JobStatus, OutcomeKind, Reason, RunStatus
from penstock.values.typed_json.json_text import decode, encode

if TYPE_CHECKING:
    from penstock.database.transaction import Transaction


# A step of a run, as users see it.


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a run. `path` has the element's index in each enclosing expand."""

    id: str
    key: str
    path: tuple[int, ...]
    task: str
    status: JobStatus
    reason: Reason | None
    error: str | None
    output: Any
    started_at: datetime | None
    finished_at: datetime | None
    _attempts: tuple[AttemptRecord, ...] = ()

    def attempts(self) -> list[AttemptRecord]:
        """Every finished attempt, in order."""
        return list(self._attempts)


def step_of(row: Sequence[Any], attempts: list[Sequence[Any]], read: Callable[[str, str], Any]) -> Step:
    """A step from its row and those of its attempts, each of which ends in its output.

    `read` gives the value behind a stored output of a node.
    """
    id, node, path, task, status, reason, claimed, finished, _created = row
    records = tuple([attempt_of(attempt[:-1]) for attempt in attempts])
    succeeded = [attempt[-1] for attempt in attempts if attempt[4] == OutcomeKind.SUCCEEDED]
    errors = [record.error for record in records if record.error]
    done = JobStatus.stored(status) is JobStatus.SUCCEEDED
    if JobStatus.stored(status) is JobStatus.SKIPPED and not records:
        claimed = None  # the step was claimed when its run had halted already: no handler was called
    return Step(
        id=str(id),
        key=node,
        path=path_of(path or ""),
        task=task,
        status=JobStatus.stored(status),
        reason=Reason.stored(reason) if reason else None,
        error=errors[-1] if errors and not done else None,
        output=read(node, succeeded[-1] or "null") if succeeded and done else None,
        started_at=instant(claimed) if claimed else None,
        finished_at=instant(finished) if finished else None,
        _attempts=records,
    )


R = TypeVar("R", covariant=True, default=Any)
DAY = 86_400.0
FIRST_LOOK = 0.02
"""The first delay between two reads of a run: runs take a while, and a wake-up may tell of the end sooner."""
JUST_NOW = 0.001


class _Look(NamedTuple):
    status: RunStatus
    value: Any


class Run(RunControl, RunDefinition, Generic[R]):
    """A handle: it holds an id and asks the database."""

    def __init__(self, host: AppServices, id: str, made: RunHeader | None = None) -> None:
        self._host = host
        self.id = id
        self._made_at = -JUST_NOW if made is None else time.monotonic()
        self._seen = made
        """The header of the run, once it is known."""

    # looking

    @property
    def status(self) -> RunStatus:
        return self._state().status

    async def status_async(self) -> RunStatus:
        return await self._host.bridge.run(lambda: self.status)

    @property
    def reasons(self) -> list[Reason]:
        """Why it did not end well: the reasons of the steps that failed, each once."""
        return [Reason.stored(reason) for reason in self._state().reasons]

    async def reasons_async(self) -> list[Reason]:
        return await self._host.bridge.run(lambda: self.reasons)

    @property
    def pipeline(self) -> str:
        return self._state().pipeline

    @property
    def context(self) -> RunContext:
        """Values that all steps of the run share."""
        step = running.get()
        own = step is not None and step.run_id == self.id
        return RunContext(
            self._host.database,
            self.id,
            self._host.bridge.run,
            step.idempotency_key if step and own else None,
        )

    def result(self, timeout: float | None = None) -> R:
        """Wait for the run's value. Raises `RunFailed` if there is none to come, `ResultTimeout` if it takes longer.

        An outage of the database is waited out; `DatabaseUnavailable` if it is still away when the time is over.
        """
        patience = ResultWaiter(self._host, timeout, RUN_ENDED, FIRST_LOOK)
        with patience:
            if self._is_new:
                patience.wait()
            while (ended := patience.look(self._read_look)) is None:
                if not patience.wait():
                    raise ResultTimeout(f"run {self.id}", patience.seconds, patience.status)
        return ended.value  # type: ignore[no-any-return]

    async def result_async(self, timeout: float | None = None) -> R:
        """`result` for async callers; no thread is held while waiting."""
        patience = ResultWaiter(self._host, timeout, RUN_ENDED, FIRST_LOOK)
        async with patience:
            if self._is_new:
                await patience.wait_async()
            while (ended := await patience.look_async(self._read_look)) is None:
                if not await patience.wait_async():
                    raise ResultTimeout(f"run {self.id}", patience.seconds, patience.status)
        return ended.value  # type: ignore[no-any-return]

    def steps(self) -> list[Step]:
        """Every step that was reached, oldest first."""
        return self._database.read(self._steps)

    async def steps_async(self) -> list[Step]:
        return await self._host.bridge.run(self.steps)

    def graph(self) -> Graph:
        """The definition, with how many steps of each node stand where."""
        return self._database.read(self._graph)

    async def graph_async(self) -> Graph:
        return await self._host.bridge.run(self.graph)

    def stream(self, timeout: float | None = None) -> UpdateStream[RunUpdate]:
        """Follow the run until it ends: `async for update in run.stream():`, or `for` in sync code.

        An update has `status`, `steps` (by node, how many stand where), `done`, `total` and `reasons`.
        """
        return UpdateStream(self._host, self._movement, f"run {self.id}", timeout, RUN_ENDED)

    def _movement(self) -> RunUpdate:
        return self._database.read(self._read_movement)

    def _read_movement(self, tx: Transaction) -> RunUpdate:
        state = self._read_state(tx)
        steps: dict[str, dict[str, int]] = {}
        for node, status, count in tx.rows(reading.COUNTS, run=self.id):
            steps.setdefault(str(node), {})[str(status)] = int(count)
        return RunUpdate(state.status, steps, state.reasons)

    # steering

    def signal(self, name: str, value: object = None, path: Sequence[int] | None = None) -> bool:
        """Give a signal that a step waits for, now or later. False: it was given before, and that one stands.

        `path`: only to the wait of this element, by its index in each enclosing expand.
        """
        text = encode(value, limit=self._host.settings.payload_limit, name=f"the signal {name!r}")
        where = signal_rows.read_path(path)

        def record(tx: Transaction) -> bool:
            signal_rows.check_place(self._host.engine.engine_state, tx, self.id, name, where)
            return signals.record(tx, self.id, name, text, where, publication.headers)

        with signalling(self._host, self.id, name) as publication:
            given = self._database.in_transaction(record)
            self.delivered(name, where)
        return given

    async def signal_async(self, name: str, value: object = None, path: Sequence[int] | None = None) -> bool:
        return await self._host.bridge.run(self.signal, name, value, path)

    def token(self, name: str, expires: float | str = DAY, path: Sequence[int] | None = None) -> str:
        """A signed text with which `app.resume(token, value)` gives this signal, once, within `expires` seconds.

        `path`: only to the wait of this element. The token can be sent as a link: everyone who has it may use it.
        """
        seconds, where = _seconds(expires), signal_rows.read_path(path)
        secrets_of(self._host.settings)
        self._host.prepare()
        issued = self._database.read
        return issued(lambda tx: issue(self._host.engine.engine_state, tx, self.id, name, where, seconds))

    async def token_async(
        self, name: str, expires: float | str = DAY, path: Sequence[int] | None = None
    ) -> str:
        return await self._host.bridge.run(self.token, name, expires, path)

    def delivered(self, name: str, path: Path) -> None:
        """After a signal was recorded: deliver it now, instead of leaving it to its timer."""
        self._database.in_transaction(self._deliver, name, path_text(path))
        if self._host.inline is not None:
            self._host.inline([])

    def _deliver(self, tx: Transaction, name: str, path: str) -> None:
        engine_state = self._host.engine.engine_state
        ended = signals.deliver(engine_state, tx, self.id, name, path)
        if ended:
            follow(engine_state, tx, ended)

    # reading

    @property
    def _is_new(self) -> bool:
        """True if the run was triggered this very moment: there is no need to look whether it has ended."""
        return time.monotonic() - self._made_at < JUST_NOW and self._host.inline is None

    def _read_look(self) -> _Look:
        return self._database.read(self._look)

    def _look(self, tx: Transaction) -> _Look:
        """The state of the run and, if it succeeded, its value: in one transaction.

        A caller that reads a second time was woken by an end, most likely of this run: then the value is read too.
        """
        tx.dialect.go_by_index(tx)
        asked, seen = tx.send_ahead(reading.RUN_STATES, ids=[self.id]), self._seen
        view = self._view(tx, seen) if seen is not None else None
        early = values.ask_results(tx, view) if view is not None else None
        state = self._checked(reading.parse_run_states(asked()).get(self.id))
        if seen is None or seen.definition != state.definition:
            self._seen = RunHeader(state.pipeline, state.definition, state.args)
            view = early = None
        if not state.status.terminal:
            return _Look(state.status, None)
        return _Look(state.status, self._value(tx, state, view, early))

    def _view(self, tx: Transaction, origin: RunHeader) -> RunView:
        return view(self._host.engine.engine_state, tx, self.id, origin)

    def _value(
        self,
        tx: Transaction,
        state: RunStatusRow,
        view: RunView | None,
        early: Callable[[], Values] | None,
    ) -> Any:
        if state.status is not RunStatus.SUCCEEDED:
            engine_state = self._host.engine.engine_state
            definition = wiring_for(engine_state, tx, state.definition, state.pipeline).definition
            why = reading.first_failure(tx, self.id, definition)
            raise RunFailed(self.id, state.status, state.reasons, *why)
        if state.mode == RunMode.STOPPED:
            return decode(state.result or "null")
        engine_state = self._host.engine.engine_state
        known = early() if early is not None else None
        if known is None:
            tx.dialect.go_by_index(tx)
        run = view or self._view(tx, RunHeader(state.pipeline, state.definition, state.args))
        return values.natural_result(engine_state, tx, run, known)

    def _steps(self, tx: Transaction) -> list[Step]:
        attempts: dict[str, list[Sequence[Any]]] = {}
        for job, *attempt in sorted(tx.rows(reading.ATTEMPTS, run=self.id), key=lambda row: (row[0], row[1])):
            attempts.setdefault(str(job), []).append(attempt)
        rows = sorted(tx.rows(reading.STEPS, run=self.id), key=lambda row: str(row[0]))
        found = reading.run_states(tx, [self.id]).get(self.id) if rows else None
        if found is None:
            return []
        engine_state = self._host.engine.engine_state
        wiring = wiring_for(engine_state, tx, found.definition, found.pipeline)
        read = values.reader(engine_state, wiring, found.pipeline)
        return [step_of(row, attempts.get(str(row[0]), []), read) for row in rows]

    def _graph(self, tx: Transaction) -> Graph:
        state = reading.run_states(tx, [self.id]).get(self.id)
        if state is None:
            raise PenstockError(f"there is no run {self.id}")
        wiring = wiring_for(self._host.engine.engine_state, tx, state.definition, state.pipeline)
        return graph_of(wiring, state.status, tx.rows(reading.COUNTS, run=self.id))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<run {self.id}>"


def _seconds(expires: float | str) -> float:
    return checked("expires", expires, lambda given: parse.duration(given, 0.001))


def signalling(host: AppServices, run: str, name: str) -> AbstractContextManager[Publication]:
    """Run the enqueue middlewares around the block that gives a signal."""
    publication = Publication("signal", name, 1)
    if not host.enqueue_middlewares:
        return nullcontext(publication)
    publication.run_id, publication.run_headers = run, host.engine.run_headers.read(run)
    return publishing(host.enqueue_middlewares, publication)
