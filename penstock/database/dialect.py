"""The dialect protocol: everything that differs between databases. Everything else is one set of statements."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock.database.templates import ListType, ParamStyle, Renderer

if TYPE_CHECKING:
    from penstock.database.transaction import Transaction
    from penstock.database.url import Url
    from penstock.settings import Settings

Row = tuple[Any, ...]
Parameters = Mapping[str, object]
Ahead = Callable[[], list[Row]]
"""A query that was sent ahead; calling it waits for the rows."""


FIELD = re.compile(r":([a-z_]+)")
"""A field of a batch, as the SQL of a `TableWrite` names it."""


@dataclass(frozen=True, slots=True)
class TableWrite:
    """One table's share of a batch insert: column → SQL over the batch's fields (`:field`)."""

    table: str
    columns: Mapping[str, str]
    ignore_duplicates: bool = False


CHORES = frozenset({"scheduled", "timers", "advancements"})
"""Tables whose rows are work for the housekeeping, now or when it is time."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchWrite:
    """Where a batch goes. Made once and used again and again: its statements are remembered by it."""

    tables: tuple[TableWrite, ...]
    are_chores: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "are_chores", any(write.table in CHORES for write in self.tables))


@dataclass(frozen=True, slots=True)
class Lane:
    """A queue at one priority, and the highest sequence seen there: claims ask for what lies above it."""

    queue: str
    tier: int
    floor: int
    limit: int


class FastPath(NamedTuple):
    """The parts of the fast path: shorter ways to the same rows. Each can be taken without the others, except that
    `presume` and `plan` need `settle`."""

    claim: bool = False
    """An idle worker claims by one statement, which is a transaction by itself."""
    settle: bool = False
    """Successes are settled by one statement (`queue/settle.py`)."""
    presume: bool = False
    """The next steps are written without waiting for an answer; the database checks what was presumed."""
    plan: bool = False
    """The plan after a plain success is made once for a node (`pipelines/advance/fast_path.py`)."""
    offer: bool = False
    """A worker with room holds the next steps in the transaction that makes them ready."""


GENERAL_WAY = FastPath()
WITHOUT_ONE_STATEMENT = FastPath(offer=True)
"""For databases that settle and claim in several statements."""
ALL_PARTS = FastPath(claim=True, settle=True, presume=True, plan=True, offer=True)


class Dialect(Protocol):
    """A database's own way of saying what the others say differently."""

    name: str
    style: ParamStyle
    own_style: ParamStyle
    """On connections of our own, which may be spoken to in another way than the caller's."""
    now: str
    lock: str
    lock_skip: str
    by_key: str
    lateral: bool
    """A query can look up each element of a list by an index (LATERAL)."""
    probes_in_recursion: bool
    """A recursive query finds the next key of an index by a look at it; where not, it would read all that are left."""
    fast_path: FastPath
    """The shorter ways that are taken. The setting `fast_path` switches all of them off."""
    pipelines_statements: bool
    """The database works on one statement while the next is made."""
    pushes_wakeups: bool
    """LISTEN/NOTIFY: another process can be told that there is work."""
    keeps_dead_rows: bool
    """Deleted rows are still walked over for a while, so a claim needs its floor."""
    in_memory: bool
    """True if the database is in memory: it exists on one connection, which all threads share."""
    is_pooled: bool
    """Behind a pooler: each transaction may be on another connection of the server, and nothing outlives it."""
    locks_on_one_node: bool
    """Row locks are known to one node of a cluster, and other nodes write too: what a lock decides must be written."""
    undoes_for_others: bool
    """A transaction that did nothing wrong may be undone because another one went first, as a matter of course."""
    one_writer: bool
    """A transaction that has written keeps all others from writing: its schema must be made within it."""

    def open(self, url: Url, settings: Settings) -> Any:
        """A new connection of our own, which SQLAlchemy has no part in; None: only by its means can it be had."""

    def close(self, driver: Any) -> None:
        """Close a connection of our own, whatever state it is in."""

    def engine_options(self, url: Url, settings: Settings) -> dict[str, Any]:
        """Arguments for `create_engine`: driver timeouts and the state every connection of ours starts in."""

    def connect(self, *args: Any, **named: Any) -> Any:
        """A new connection, by what SQLAlchemy would give the driver; None: let it do so."""

    def connected(self, driver: Any) -> None:
        """Bring a new connection into the state that all of ours are in."""

    def on_checkout(self, driver: Any) -> None:
        """Make a pooled connection what SQLAlchemy expects of it."""

    def dedicate(self, driver: Any, patience: float | None) -> bool:
        """Ready a connection for nothing but the queue's statements; True if it is then unfit for others.

        `patience`: so long, if not shorter, an answer is waited for on it.
        """

    def go_by_index(self, tx: Transaction) -> None:
        """For the rest of this transaction, find rows as a dedicated connection would, whatever statistics say."""

    def execute(self, driver: Any, opened: object, sql: str, parameters: Parameters) -> Any:
        """Send a statement of our own, in whose rows ids are text; the cursor that will have its answer."""

    def among(self, parameter: str, kind: ListType) -> str:
        """The SQL for "is one of" a list parameter."""

    def list_value(self, values: Sequence[object], kind: ListType) -> object:
        """A list parameter as the driver wants it."""

    def begin(self, driver: Any) -> object:
        """Open a transaction that may write, on the driver's own connection; what is to be given to its end."""

    def wait(self, opened: object) -> None:
        """Until everything sent so far has been done."""

    def wait_for_answers(self, opened: object) -> None:
        """Wait for the answers to what was sent so far; for the commit of what needs no other, only later."""

    def flush(self, opened: object) -> None:
        """Have everything sent so far begun, while the next is made. Not if it locks what others want.

        Until it is waited for the server lets us have all the time in the world, also if we freeze.
        """

    def begin_single(self, driver: Any) -> object:
        """Likewise, for work whose every statement may stand alone: no transaction where that saves a round trip."""

    def begin_reading(self, driver: Any) -> object:
        """Get ready to read without blocking writers."""

    def begin_brief_reading(self, driver: Any, seconds: float) -> object:
        """Likewise, for people who look: no statement takes longer, and no plan depends on statistics."""

    def end_brief_reading(self, driver: Any) -> None:
        """Give statements on this connection their usual time again, after the rollback."""

    def commit_stamp(self, tx: Transaction) -> str | None:
        """A text that changes with every commit, and may change without one; None: the database cannot tell."""

    def use_driver_cursors(self, opened: object) -> None:
        """From here on the driver's own cursors are used on this transaction."""

    def commit(self, driver: Any, opened: object) -> None: ...

    def rollback(self, driver: Any, opened: object) -> None: ...

    def write(
        self,
        tx: Transaction,
        renderer: Renderer,
        writes: BatchWrite,
        rows: Sequence[Parameters],
        shared: Parameters,
    ) -> None:
        """Insert one batch into one or several tables."""

    def take_ready(
        self,
        tx: Transaction,
        lanes: Sequence[Lane],
        tasks: Sequence[str],
        limit: int,
        token: int,
        process: str,
    ) -> Ahead:
        """Move up to `limit` ready jobs to this claim; see `penstock.queue.claim`."""

    def succeed(
        self, tx: Transaction, rows: Sequence[Parameters], process: str | None, finished_tokens: Sequence[int]
    ) -> Ahead:
        """Settle successes through the fence; the jobs that were still held by these very tokens.

        In a transaction that presumes, all of them or the transaction fails; what is returned says nothing then.
        """

    def assume(self, tx: Transaction, condition: str, parameters: Parameters) -> None:
        """Have the transaction fail if this does not hold; where that saves a wait, only later."""

    def assume_changed(self, tx: Transaction, update: str, expected: int, parameters: Parameters) -> None:
        """Have the transaction fail if this changes more or fewer rows; where that saves a wait, only later."""

    def lock_patience(self, seconds: float) -> str | None:
        """The statement after which a transaction waits so long for a lock; it is said again when that is over."""

    def is_transient(self, error: BaseException) -> bool:
        """Deadlock, serialization failure, lock timeout: the same transaction may well pass next time."""

    def is_disconnect(self, error: BaseException) -> bool:
        """The connection is gone; whether a commit under way took place is not known."""

    def is_failed_assumption(self, error: BaseException) -> bool:
        """Something that a transaction had assumed was not so."""

    def is_duplicate(self, error: BaseException) -> bool:
        """A unique key refused the row."""
