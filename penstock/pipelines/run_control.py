"""The methods of `Run` that pause, cancel, revive, repeat and chain a run.

Each takes effect in the database at once; the caller, or any worker, then does the chores that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from penstock.app_services import AppServices
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.errors import ArgumentError, ConfigurationError, DefinitionError, PenstockError, ReviveError
from penstock.middleware import Publication, publishing_each
from penstock.pipelines.advance import read, run_rows
from penstock.pipelines.advance.read import RunStatusRow
from penstock.pipelines.advance.run_rows import wiring_for
from penstock.pipelines.lifecycle import cancel, chains, child_runs, fork, migrate, revive
from penstock.pipelines.lifecycle.start import NewRun, is_written
from penstock.pipelines.model.definition import Definition
from penstock.pipelines.model.diff import Difference, compare, current
from penstock.values import parse
from penstock.values.ids import id_to_make
from penstock.values.parse import NAME_LENGTH, checked
from penstock.values.typed_json.json_text import decode

if TYPE_CHECKING:
    from penstock.pipelines.run import Run


# A run and its definition: which one it has, how that differs from today's, and moving to today's.


class RunDefinition:
    """The part of `Run` that compares and changes its definition."""

    id: str
    _host: AppServices

    @property
    def definition(self) -> str:
        """The hash of the definition that the run has."""
        return self._own_definition().hash

    def diff(self) -> Difference:
        """Compare with the app's definition of this pipeline now; false if nothing differs."""
        own = self._own_definition()
        return compare(own, current(self._host, own.name).definition)

    async def diff_async(self) -> Difference:
        return await self._host.bridge.run(self.diff)

    def migrate(self) -> bool:
        """Have a run that is under way go on with the app's definition of now. False: it does already.

        What the run has already must be the same in both, or `DefinitionsDiffer` says what is not, and nothing is
        changed.
        """
        host = self._host
        wanted = current(host, self._own_definition().name)
        tried: list[bool] = []

        def move(tx: Transaction) -> bool:
            moved = migrate.migrate(host.engine.engine_state, tx, self.id, wanted)
            # An earlier try may have been committed, and only its answer lost.
            tried.append(moved)
            return any(tried)

        return host.database.in_transaction(move)

    async def migrate_async(self) -> bool:
        return await self._host.bridge.run(self.migrate)

    def _own_definition(self) -> Definition:
        return self._host.database.read(self._read_definition)

    def _read_definition(self, tx: Transaction) -> Definition:
        state = read.run_states(tx, [self.id]).get(self.id)
        if state is None:
            raise PenstockError(f"there is no run {self.id}; it may have been pruned")
        return wiring_for(self._host.engine.engine_state, tx, state.definition).definition


# Where a run comes from: what it was given, under which key, and which run it goes on from or repeats.


class RunOrigin:
    """The part of `Run` that tells how it began."""

    id: str
    _host: AppServices

    @property
    def args(self) -> dict[str, Any]:
        """The arguments of the trigger, by parameter; typed as the app's pipeline says, if it still takes them."""
        state = self._state()
        pipeline = self._host.find_pipeline(state.pipeline)
        try:
            return pipeline.decode(state.args) if pipeline is not None else _natural(state.args)
        except PenstockError:
            return _natural(state.args)

    @property
    def key(self) -> str | None:
        """The key it was triggered under."""
        return self._state().key

    @property
    def labels(self) -> list[str]:
        """The labels it was triggered with."""
        self._host.prepare()
        return self._host.database.read(run_rows.of_run, self.id)

    @property
    def description(self) -> str:
        """The description of the pipeline in the app; empty if there is none."""
        pipeline = self._host.find_pipeline(self._state().pipeline)
        return "" if pipeline is None else pipeline.description

    @property
    def revived_from(self) -> Run | None:
        """The run that this one continues."""
        state = self._state()
        return self._other(state.revived_from if state.forked_from is None else None)

    @property
    def forked_from(self) -> Run | None:
        """The run whose work this one keeps, up to the step at which it was forked."""
        return self._other(self._state().forked_from)

    @property
    def rerun_of(self) -> Run | None:
        """The run of which this one is a repetition."""
        return self._other(self._state().rerun_of)

    @property
    def parent(self) -> Run | None:
        """The run of which this one is a step."""
        return self._other(self._state().parent_run)

    def _other(self, id: str | None) -> Run | None:
        return None if id is None else self._host.run(id)

    def _state(self) -> RunStatusRow:
        self._host.prepare()
        return self._host.database.read(self._read_state)

    def _read_state(self, tx: Transaction) -> RunStatusRow:
        return self._checked(read.run_states(tx, [self.id]).get(self.id))

    def _checked(self, found: RunStatusRow | None) -> RunStatusRow:
        if found is None:
            raise PenstockError(
                f"there is no run {self.id}; it may have been pruned, or its trigger never committed"
            )
        return found


def _natural(text: str) -> dict[str, Any]:
    return cast("dict[str, Any]", decode(text))


DEFAULT_GRACE = 10.0
OWN, CURRENT = "own", "current"
Arguments = Sequence[Any] | Mapping[str, Any]
NOTHING_FOLLOWS = (
    "then() needs what is to follow: a pipeline or a task, or a list such as [one, (other, 1, 2)]"
)


class RunControl(RunOrigin):
    """The part of `Run` that pauses, cancels, revives and chains it."""

    @property
    def _database(self) -> Database:
        """The database, with the schema in place: a run made from an id may be the first to use it."""
        self._host.prepare()
        return self._host.database

    def cancel(self, grace: float = DEFAULT_GRACE) -> bool:
        """Cancel the run: no further step starts, running steps are told to stop, and after `grace` seconds they are
        given up. False: it was cancelled before."""
        engine, seconds = self._host.engine, checked("grace", grace, parse.seconds)
        begun = self._database.in_transaction(
            lambda tx: cancel.cancel(engine.engine_state, tx, self.id, seconds)
        )
        engine.work_off()
        return begun

    async def cancel_async(self, grace: float = DEFAULT_GRACE) -> bool:
        return await self._host.bridge.run(self.cancel, grace)

    def pause(self) -> bool:
        """Start no further step until resumed. What runs goes on."""
        return self._database.in_transaction(cancel.pause, self.id)

    async def pause_async(self) -> bool:
        return await self._host.bridge.run(self.pause)

    def resume(self) -> bool:
        """Go on after a pause."""
        resumed = self._database.in_transaction(cancel.resume, self.id)
        self._host.engine.work_off()
        return resumed

    async def resume_async(self) -> bool:
        return await self._host.bridge.run(self.resume)

    def revive(
        self, duplicate_context: bool = False, args: Arguments | None = None, definition: str = OWN
    ) -> Run:
        """A new run that keeps what this one has finished and does the rest again.

        `args` replaces the run's arguments for what is still to be done; finished steps keep their outputs. They are
        for the parameters of the definition that the new run has.
        `definition="current"` takes the app's definition of now: finished steps are kept where they, and all that
        they were made from, are not changed.
        """
        if definition not in (OWN, CURRENT):
            raise ReviveError(f"revive(definition={definition!r}): it is {OWN!r} or {CURRENT!r}")
        return self._revived(duplicate_context, args, None, definition == CURRENT)

    async def revive_async(
        self, duplicate_context: bool = False, args: Arguments | None = None, definition: str = OWN
    ) -> Run:
        return await self._host.bridge.run(self.revive, duplicate_context, args, definition)

    def rerun(self, args: Arguments | None = None) -> Run:
        """The same again as a new run, with the app's definition of now: nothing is kept but the arguments.

        `args` replaces those. The run must have ended.
        """
        host, new = self._host, id_to_make()
        host.prepare()
        wanted = current(host, self._state().pipeline)
        text = None if args is None else self._encoded(args)

        def write(tx: Transaction) -> None:
            if not is_written(tx, new):
                revive.rerun(host.engine.engine_state, tx, self.id, new, wanted, text)

        return self._written(write, new)

    async def rerun_async(self, args: Arguments | None = None) -> Run:
        return await self._host.bridge.run(self.rerun, args)

    def retry_step(self, key: str, duplicate_context: bool = True) -> Run:
        """Like `revive`, but of all that failed only this step is done again, and what depends on it."""
        checked("key", key, lambda given: parse.text(given, NAME_LENGTH))
        return self._revived(duplicate_context, None, key, False)

    async def retry_step_async(self, key: str, duplicate_context: bool = True) -> Run:
        return await self._host.bridge.run(self.retry_step, key, duplicate_context)

    def fork(self, at: str, duplicate_context: bool = True) -> Run:
        """A new run that does this step and all that depends on it anew, and keeps the rest.

        The run must have ended, and is not changed. What is redone is new work, with new idempotency keys: a step that
        charges a card charges it again.
        """
        checked("at", at, lambda given: parse.text(given, NAME_LENGTH))
        host, new = self._host, id_to_make()
        host.prepare()

        def write(tx: Transaction) -> None:
            if not is_written(tx, new):
                fork.fork(host.engine.engine_state, tx, self.id, new, at, duplicate_context)

        return self._written(write, new)

    async def fork_async(self, at: str, duplicate_context: bool = True) -> Run:
        return await self._host.bridge.run(self.fork, at, duplicate_context)

    def then(self, /, *target: Any, **kwargs: Any) -> Following:
        """A run that starts when this one has succeeded, and is skipped if it does not.

        `run.then(pipeline, *args)`, or `run.then([pipeline, (other, 1, 2)])` for several at once.
        """
        if not target:
            raise DefinitionError(NOTHING_FOLLOWS)
        return Following(self._host, [self]).then(*target, **kwargs)

    async def then_async(self, /, *target: Any, **kwargs: Any) -> Following:
        return await self._host.bridge.run(self.then, *target, **kwargs)

    def _revived(self, context: bool, args: Arguments | None, only: str | None, redefine: bool) -> Run:
        host, new = self._host, id_to_make()
        host.prepare()
        text = None if args is None else self._encoded(args, keeps=not redefine)
        wanted = current(host, self._state().pipeline) if redefine else None

        def write(tx: Transaction) -> None:
            if not is_written(tx, new):
                revive.revive(host.engine.engine_state, tx, self.id, new, context, text, only, wanted)

        return self._written(write, new)

    def _written(self, write: Callable[[Transaction], None], new: str) -> Run:
        host = self._host
        host.database.in_transaction(write)
        if host.inline is not None:
            host.inline([])
        return host.run(new)

    def _encoded(self, args: object, keeps: bool = False) -> str:
        """Encode new arguments. `keeps`: for the run's own definition; else for the app's."""
        state = self._state()
        pipeline = self._host.find_pipeline(state.pipeline)
        if pipeline is None:
            raise DefinitionError(
                f"this app knows no pipeline for run {self.id}: its new arguments cannot be checked"
            )
        given = _call(pipeline.name, args)
        if keeps:
            engine_state = self._host.engine.engine_state
            own = self._database.read(lambda tx: wiring_for(engine_state, tx, state.definition)).definition
            if own.params != pipeline.definition.params:
                return child_runs.of_revival(self.id, own, pipeline, *given)
        return pipeline.encode(*given)


def _call(name: str, args: object) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(args, Mapping):
        return (), args
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        raise ArgumentError(name, f"args= takes a list, or a dict of names; got {args!r}")
    return args, {}


class Following:
    """Runs that follow others; `then` goes on from all of them."""

    def __init__(self, host: AppServices, runs: Sequence[Any]) -> None:
        self._host = host
        self.runs = list(runs)

    def then(self, target: Any, /, *args: Any, **kwargs: Any) -> Following:
        """Runs that start when all of these have succeeded. Of a list, each that has no arguments is given these."""
        several = isinstance(target, list | tuple)
        calls = list(_calls(target, args, kwargs)) if several else [(target, args, kwargs)]
        if not calls:
            raise DefinitionError(f"{NOTHING_FOLLOWS}; got {target!r}")
        news = [self._new(pipeline, given, named) for pipeline, given, named in calls]
        host, upstream = self._host, [run.id for run in self.runs]
        host.prepare()

        def write(tx: Transaction) -> None:
            if not is_written(tx, headed[0].id):
                chains.register(host.engine.engine_state, tx, upstream, headed)

        with _publishing(host, news) as headed:
            host.database.in_transaction(write)
        host.engine.work_off()
        return Following(host, [host.run(new.id) for new in news])

    async def then_async(self, target: Any, /, *args: Any, **kwargs: Any) -> Following:
        return await self._host.bridge.run(self.then, target, *args, **kwargs)

    def _new(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NewRun:
        pipeline = self._host.as_pipeline(target)
        refused = [
            name for name, value in pipeline.overrides.items() if name != "labels" and value is not None
        ]
        if refused:
            raise ConfigurationError(
                f"{pipeline.name}: a run that follows others starts when they have succeeded, and takes no option "
                f"{refused[0]!r}; only labels"
            )
        labels = checked("labels", pipeline.overrides.get("labels"), parse.labels, pipeline.name)
        return NewRun(
            id_to_make(), pipeline.runnable, pipeline.encode(args, kwargs), labels=labels, waits=True
        )

    def __iter__(self) -> Any:
        return iter(self.runs)

    def __getattr__(self, name: str) -> Any:
        """A chain of one is that run: `run.then(report).result()`."""
        if name.startswith("_") or len(self.runs) != 1:
            raise AttributeError(f"these are {len(self.runs)} runs: use .runs")
        return getattr(self.runs[0], name)

    def __repr__(self) -> str:
        return f"<following runs {', '.join(run.id for run in self.runs)}>"


@contextmanager
def _publishing(host: AppServices, news: Sequence[NewRun]) -> Iterator[Sequence[NewRun]]:
    """Write runs inside the block, with the headers that the enqueue middlewares have added: one publication for each
    pipeline."""
    if not host.enqueue_middlewares:
        yield news
        return
    ids: dict[str, list[str]] = {}
    for new in news:
        ids.setdefault(new.definition.name, []).append(new.id)
    publications = {name: Publication("run", name, len(of_name)) for name, of_name in ids.items()}
    with publishing_each(host.enqueue_middlewares, list(publications.values())):
        yield [new._replace(headers=publications[new.definition.name].headers) for new in news]
        for name, publication in publications.items():
            publication.ids = ids[name]


def _calls(
    targets: Iterable[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterable[tuple[Any, Sequence[Any], Mapping[str, Any]]]:
    for target in targets:
        if target == ():
            raise DefinitionError(f"{NOTHING_FOLLOWS}; got {targets!r}")
        if isinstance(target, tuple):
            yield target[0], target[1:], {}
        else:
            yield target, args, kwargs
