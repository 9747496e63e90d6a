"""What the storage half of pipelines needs of its app, and what it remembers between transactions.

Definitions are remembered by their hash, and never change. Of a run, its pipeline, definition and arguments are
remembered: whoever uses them compares the definition with the one that the run has now (see `runs.views`).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.database.dialect import Ahead
from penstock.database.engine import Database
from penstock.database.transaction import Transaction
from penstock.lazy import Lazy
from penstock.options import TaskOptions
from penstock.pipelines.troubles import Troubles
from penstock.queue.jobs import Offer
from penstock.queue.wakeups import RUN_ENDED, Wakeups, ready
from penstock.settings import Settings
from penstock.telemetry.events import Stream
from penstock.values.forks import forget_after_fork
from penstock.values.jsontext import dumps

if TYPE_CHECKING:
    from penstock.pipelines import definition
    from penstock.pipelines.changes import Plan
    from penstock.pipelines.wiring import Wiring
else:
    definition = Lazy("penstock.pipelines.definition")

USUAL = TaskOptions()
MOST_RUNS = 5000
LONGEST_ARGS = 4096
STORED_OPTIONS = ("timeout", "executor", "retries")


class Host(Protocol):
    """An app, seen from the storage of pipelines."""

    @property
    def settings(self) -> Settings: ...

    @property
    def database(self) -> Database: ...

    @property
    def wakeups(self) -> Wakeups: ...

    @property
    def events(self) -> Stream: ...

    def find_task(self, name: str) -> Any: ...

    def find_pipeline(self, name: str) -> Any: ...


class Mould(NamedTuple):
    """What all steps of one node, or calls of one callback, have in common as jobs."""

    task: str
    queue: str
    priority: int
    options: str | None
    max_crashes: int | None

    @classmethod
    def of(cls, task: str, said: Mapping[str, Any]) -> Mould:
        """As the definition says; it is the same in a process that does not know the task."""
        stored = {name: said[name] for name in STORED_OPTIONS if name in said}
        return cls(
            task,
            said.get("queue", USUAL.queue),
            said.get("priority", USUAL.priority),
            dumps(stored) if stored else None,
            said.get("max_crashes", USUAL.max_crashes),
        )


class Next(NamedTuple):
    """A step that follows another one."""

    node: str
    mould: Mould
    spreads: bool


class Usual(NamedTuple):
    """All that follows whenever a step of one node has succeeded (see `usual`)."""

    wiring: Wiring
    steps: tuple[Next, ...]


class Origin(NamedTuple):
    """What hardly ever changes of a run."""

    pipeline: str
    definition: str
    args: str
    revived_from: str | None = None
    only: str | None = None
    """Of the steps that failed before, do this one again and no other."""
    redefined: bool = False
    """Revived with the app's own definition; so are its children."""
    parent_job: str | None = None
    """The step that it is, if it is a child."""


class Mode(NamedTuple):
    """How a run goes on: its mode, whether it is paused, and the hash of the definition it has now."""

    mode: str
    paused: bool
    definition: str


@dataclass(slots=True)
class Trace:
    """What one transaction has made so far, for what comes later in the same one."""

    tx: Transaction
    outputs: dict[tuple[str, str, str], str | None] = field(default_factory=dict)
    modes: dict[str, Mode] = field(default_factory=dict)
    made: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Steps that are ready, by id, with their lanes."""
    tells: bool = False
    foreseen: Ahead | None = None
    """The runs of a claim, asked for along with it (see `runs.foresee`)."""
    offer: Offer | None = None
    """Who would hold new steps at once."""


class Desk:
    """The app's pipelines at work: its host, its memory, and the trace of the transaction under way."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.wirings: dict[str, Wiring] = {}
        self.stored: set[str] = set()
        self.stable: dict[tuple[str, str], frozenset[str]] = {}
        """The steps that come to the same in two definitions, by their hashes."""
        self.dependants: dict[tuple[str, str], Mapping[str, int]] = {}
        """What depends on a step that was retried by itself, by definition and node (see `dependants`)."""
        self.plans: dict[tuple[str, str], Plan] = {}
        """What follows the usual end of a step, by definition and node (see `usual`)."""
        self.usual: dict[tuple[str, str], Usual] = {}
        self.troubles = Troubles()
        self._origins: OrderedDict[str, Origin] = OrderedDict()
        self._moulds: dict[tuple[str, str], Mould] = {}
        self._here = threading.local()
        self.forget()
        forget_after_fork(self)

    def forget(self) -> None:
        """In a forked child the lock may be held, in a thread that is the parent's."""
        self._lock = threading.Lock()

    # runs

    def origin(self, run: str) -> Origin | None:
        return self._origins.get(run)

    def remember(self, run: str, origin: Origin) -> None:
        if len(origin.args) > LONGEST_ARGS:
            return
        with self._lock:
            self._origins[run] = origin
            while len(self._origins) > MOST_RUNS:
                self._origins.popitem(last=False)

    # steps

    def mould(self, origin: str, node: definition.Node) -> Mould:
        """How steps of a node are enqueued; `origin` is the hash of its definition."""
        found = self._moulds.get((origin, node.key))
        if found is None:
            named = node.kind in (definition.Kind.TASK, definition.Kind.CHILD)
            task = node.target if named else f"@{node.kind}.{node.target}"[:200]
            found = self._moulds[origin, node.key] = Mould.of(task, node.options.job)
        return found

    # the transaction under way

    def trace(self, tx: Transaction) -> Trace:
        """The trace of this transaction. One thread has one transaction at a time."""
        trace: Trace | None = getattr(self._here, "trace", None)
        if trace is None or trace.tx is not tx:
            trace = self._here.trace = Trace(tx)
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
        self.host.wakeups.tell_with(tx, [ready(queue, tier) for queue, tier in lanes])

    def tell_ended(self, tx: Transaction) -> None:
        if tx.opened is not None:
            self.host.wakeups.tell_with(tx, [RUN_ENDED])
        else:
            tx.after_commit(lambda: self.host.wakeups.tell(RUN_ENDED))

    def _tell(self, trace: Trace) -> None:
        for queue, tier in sorted(set(trace.made.values())):
            self.host.wakeups.tell(ready(queue, tier))
