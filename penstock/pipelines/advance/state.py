"""The state of the engine: its app's services, and what the process remembers between transactions.

Definitions are remembered by their hash, and never change. Of a run, its pipeline, definition and arguments are
remembered: the reader compares the definition with the one that the run has now (see `run_rows.views`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, Protocol, TypeVar

from penstock.app_services import AppServices
from penstock.database.dialect import Ahead
from penstock.database.transaction import Transaction
from penstock.errors import AdvancementFailed
from penstock.pipelines.model import definition
from penstock.queue.jobs import EndedStep, Offer
from penstock.queue.wakeups import RUN_ENDED, ready
from penstock.task_options import TaskOptions
from penstock.values.fork_safety import register_reset_after_fork
from penstock.values.typed_json.json_text import dumps

if TYPE_CHECKING:
    from penstock.pipelines.advance.advance import Advance
    from penstock.pipelines.advance.run_rows import RunView
    from penstock.pipelines.advance.step_rows import NewStep
    from penstock.pipelines.model.wiring import Wiring
    from penstock.pipelines.plan.changes import Plan


# Runs that cannot be planned: tried a few times, then halted with the error, so that nothing waits for them for ever.
#
# Planning is pure and should never raise. This is for the unforeseen: a bug, a definition from a newer version, rows
# that were changed by hand. A plan that raises names its run and rolls the transaction back. A caller that has made
# sure that it is this run alone spends a try, and comes back. When the tries are spent, the run is halted without
# any planning (see `finish.follow`): what has not started is swept, what runs may finish, and the last of its steps
# ends the run.

P = ParamSpec("P")
R = TypeVar("R")

MOST_TRIES = 6
"""Half of them for what came of the step, the rest for the step as a failed one."""
MOST_FAILING_RUNS = 1000


class PlanningFailures:
    """The runs that this process could not plan: how often it has tried."""

    def __init__(self) -> None:
        self._tries: OrderedDict[str, int] = OrderedDict()

    def planned(self, run: str, plan: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a planning function; an exception becomes an error that names the run."""
        try:
            return plan(*args, **kwargs)
        except Exception as error:
            raise self.of(run, error) from error

    def of(self, run: str, error: Exception) -> AdvancementFailed:
        return AdvancementFailed(run, f"{type(error).__name__}: {error}", partial(self._spend, run))

    def _spend(self, run: str) -> bool:
        """Count a failed try; True while at least half of the tries are left."""
        self._tries[run] = self._tries.pop(run, 0) + 1
        while len(self._tries) > MOST_FAILING_RUNS:
            self._tries.popitem(last=False)
        return self._tries[run] < MOST_TRIES // 2

    def given_up(self, runs: Iterable[str]) -> list[str]:
        """Those of these runs that are not tried any more."""
        if not self._tries:
            return []
        return [run for run in dict.fromkeys(runs) if self._tries.get(run, 0) >= MOST_TRIES]


USUAL = TaskOptions()
MOST_RUNS = 5000
LONGEST_ARGS = 4096
STORED_OPTIONS = ("timeout", "executor", "retries")


class RunFeatures(Protocol):
    """The features of runs that a plan needs. The engine gives them: `advance/` imports no feature."""

    def keeps_failure(
        self, engine_state: EngineState, tx: Transaction, run: RunView, place: tuple[str, str]
    ) -> bool:
        """True if this step failed in an earlier run and the new run was not revived for it."""

    def start_waiting(self, application: Advance, waits: Mapping[str, Sequence[NewStep]]) -> list[EndedStep]:
        """Set the timers of new steps that wait, and end the steps whose signal is there already."""


class JobTemplate(NamedTuple):
    """The fields that all jobs of one node, or of one callback, have in common."""

    task: str
    queue: str
    priority: int
    options: str | None
    max_crashes: int | None

    @classmethod
    def of(cls, task: str, said: Mapping[str, Any]) -> JobTemplate:
        """As the definition says; it is the same in a process that does not know the task."""
        stored = {name: said[name] for name in STORED_OPTIONS if name in said}
        return cls(
            task,
            said.get("queue", USUAL.queue),
            said.get("priority", USUAL.priority),
            dumps(stored) if stored else None,
            said.get("max_crashes", USUAL.max_crashes),
        )


class NextStep(NamedTuple):
    """A step that follows another one."""

    node: str
    template: JobTemplate
    is_expanded: bool


class CachedSteps(NamedTuple):
    """All that follows whenever a step of one node has succeeded (see `fast_path`)."""

    wiring: Wiring
    steps: tuple[NextStep, ...]


class RunHeader(NamedTuple):
    """The fields of a run that hardly ever change."""

    pipeline: str
    definition: str
    args: str
    revived_from: str | None = None
    only: str | None = None
    """Of the steps that failed before, do this one again and no other. Of a fork: the step from which all is redone."""
    redefined: bool = False
    """Revived with the app's own definition; so are its children."""
    parent_job: str | None = None
    """The step that it is, if it is a child."""
    scheduled_for: int | None = None
    """The nominal time of the tick that it was started by."""
    forked_from: str | None = None


class Mode(NamedTuple):
    """How a run goes on: its mode, whether it is paused, and the hash of the definition it has now."""

    mode: str
    paused: bool
    definition: str


@dataclass(slots=True)
class TransactionState:
    """Rows that one transaction has made so far, for later statements of the same transaction."""

    tx: Transaction
    outputs: dict[tuple[str, str, str], str | None] = field(default_factory=dict)
    modes: dict[str, Mode] = field(default_factory=dict)
    made: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Steps that are ready, by id, with their lanes."""
    tells: bool = False
    prefetched: Ahead | None = None
    """The runs of a claim, asked for along with it (see `run_rows.prefetch_runs`)."""
    offer: Offer | None = None
    """The room that the settling worker has for new steps."""


class EngineState:
    """The app's pipelines at work: its host, its memory, and the trace of the transaction under way."""

    def __init__(self, host: AppServices, features: RunFeatures) -> None:
        self.host = host
        self.features = features
        self.wirings: dict[str, Wiring] = {}
        self.stored: dict[str, float] = {}
        """By hash, when this process last wrote a definition, by its own clock (see `start.store`)."""
        self.stable: dict[tuple[str, str], frozenset[str]] = {}
        """The steps that come to the same in two definitions, by their hashes."""
        self.dependants: dict[tuple[str, str], Mapping[str, int]] = {}
        """The nodes that depend on a step that was retried by itself, by definition and node (see `compatibility`)."""
        self.plans: dict[tuple[str, str], Plan] = {}
        """The plan after the usual end of a step, by definition and node (see `fast_path`)."""
        self.cached_steps: dict[tuple[str, str], CachedSteps] = {}
        self.planning_failures = PlanningFailures()
        self._origins: OrderedDict[str, RunHeader] = OrderedDict()
        self._templates: dict[tuple[str, str], JobTemplate] = {}
        self._here = threading.local()
        self.reset_after_fork()
        register_reset_after_fork(self)

    def reset_after_fork(self) -> None:
        """In a forked child: replace the lock, which a thread of the parent may hold."""
        self._lock = threading.Lock()

    # runs

    def origin(self, run: str) -> RunHeader | None:
        return self._origins.get(run)

    def remember(self, run: str, origin: RunHeader) -> None:
        if len(origin.args) > LONGEST_ARGS:
            return
        with self._lock:
            self._origins[run] = origin
            while len(self._origins) > MOST_RUNS:
                self._origins.popitem(last=False)

    # steps

    def template(self, origin: str, node: definition.Node) -> JobTemplate:
        """How steps of a node are enqueued; `origin` is the hash of its definition."""
        found = self._templates.get((origin, node.key))
        if found is None:
            named = node.kind in (definition.NodeKind.TASK, definition.NodeKind.CHILD)
            task = node.target if named else f"@{node.kind}.{node.target}"[:200]
            found = self._templates[origin, node.key] = JobTemplate.of(task, node.options.job)
        return found

    # the transaction under way

    def trace(self, tx: Transaction) -> TransactionState:
        """The trace of this transaction. One thread has one transaction at a time."""
        trace: TransactionState | None = getattr(self._here, "trace", None)
        if trace is None or trace.tx is not tx:
            trace = self._here.trace = TransactionState(tx)
        return trace

    def tell_ready(self, tx: Transaction) -> None:
        """After the commit, wake workers for what was made ready and not claimed in the same transaction."""
        trace = self.trace(tx)
        if not trace.tells:
            trace.tells = True
            tx.after_commit(lambda: self._tell(trace))

    def tell_ready_with(self, tx: Transaction) -> None:
        """Wake workers for what was made ready: along with the commit, where nothing will be claimed before it."""
        made = self.trace(tx).made
        lanes = sorted(set(made.values()))
        made.clear()
        self.host.wakeups.notify_on_commit(tx, [ready(queue, tier) for queue, tier in lanes])

    def tell_ended(self, tx: Transaction) -> None:
        if tx.opened is not None:
            self.host.wakeups.notify_on_commit(tx, [RUN_ENDED])
        else:
            tx.after_commit(lambda: self.host.wakeups.notify(RUN_ENDED))

    def _tell(self, trace: TransactionState) -> None:
        for queue, tier in sorted(set(trace.made.values())):
            self.host.wakeups.notify(ready(queue, tier))
