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
"""A query that was sent without waiting; calling it waits for the rows."""


RESERVED = frozenset({"lag"})
"""Columns whose names are reserved words of MySQL: statements write them as `{quote}lag{quote}`."""

FIELD = re.compile(r":([a-z_]+)")
"""A field of a batch, as the SQL of a `TableWrite` names it."""


@dataclass(frozen=True, slots=True)
class TableWrite:
    """One table's share of a batch insert: column → SQL over the batch's fields (`:field`)."""

    table: str
    columns: Mapping[str, str]
    ignore_duplicates: bool = False


CHORES = frozenset({"scheduled", "timers", "advancements"})
"""Tables whose rows are work for the housekeeping, now or when they are due."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchWrite:
    """The tables that a batch is written to. Made once and reused: rendered statements are cached by it."""

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
    """The parameter style on our own connections, which may differ from the caller's."""
    now: str
    lock: str
    lock_skip: str
    by_key: str
    quote: str
    lateral: bool
    """True if a query can look up each element of a list by an index (LATERAL)."""
    probes_in_recursion: bool
    """True if a recursive query finds the next key of an index by one look-up; else it reads all keys that are left."""
    fast_path: FastPath
    """The parts of the fast path that are used. The setting `fast_path` switches all of them off."""
    pipelines_statements: bool
    """True if statements can be sent without waiting for the answers before them."""
    pushes_wakeups: bool
    """True if wake-ups reach other processes (LISTEN/NOTIFY)."""
    keeps_dead_rows: bool
    """True if a scan still reads deleted rows for a while, so that a claim needs its floor."""
    in_memory: bool
    """True if the database is in memory: it exists on one connection, which all threads share."""
    is_pooled: bool
    """True behind a pooler: each transaction may use another server connection, and session state is lost."""
    locks_on_one_node: bool
    """True if row locks are local to one node of a cluster with several writers: the locked row must be written too."""
    undoes_for_others: bool
    """True if a correct transaction is regularly rolled back because another one committed first."""
    one_writer: bool
    """True if only one transaction can write at a time: the schema must be made in the caller's own transaction."""

    def open(self, url: Url, settings: Settings) -> Any:
        """A new connection without SQLAlchemy; None: this URL needs SQLAlchemy."""

    def close(self, driver: Any) -> None:
        """Close a connection of our own, whatever state it is in."""

    def engine_options(self, url: Url, settings: Settings) -> dict[str, Any]:
        """Arguments for `create_engine`: driver timeouts and the state every connection of ours starts in."""

    def connect(self, *args: Any, **named: Any) -> Any:
        """A new connection, from the arguments that SQLAlchemy would pass to the driver; None: let SQLAlchemy
        connect."""

    def connected(self, driver: Any) -> None:
        """Bring a new connection into the state that all of ours are in."""

    def on_checkout(self, driver: Any) -> None:
        """Bring a pooled connection into the state that SQLAlchemy expects."""

    def dedicate(self, driver: Any, patience: float | None) -> bool:
        """Prepare a connection for the queue's own statements only; True if other code can no longer use it.

        `patience`: the longest wait for an answer on it, in seconds.
        """

    def go_by_index(self, tx: Transaction) -> None:
        """For the rest of this transaction, plan as on a dedicated connection: by index, whatever the statistics
        say."""

    def execute(self, driver: Any, opened: object, sql: str, parameters: Parameters) -> Any:
        """Send a statement of our own, in whose rows ids are text; the cursor that will have its answer."""

    def among(self, parameter: str, kind: ListType) -> str:
        """The SQL for "is one of" a list parameter."""

    def list_value(self, values: Sequence[object], kind: ListType) -> object:
        """A list parameter as the driver wants it."""

    def begin(self, driver: Any) -> object:
        """Open a transaction that may write, on the driver's own connection; what is to be given to its end."""

    def wait(self, opened: object) -> None:
        """Wait until everything sent so far is done."""

    def flush(self, opened: object) -> None:
        """Send everything so far to the server, which begins while we prepare the next statement.

        Not after statements that lock.

        Until it is waited for the server lets us have all the time in the world, also if we freeze.
        """

    def begin_single(self, driver: Any) -> object:
        """The same for work whose statements need no common transaction: none is opened where that saves a round
        trip."""

    def begin_reading(self, driver: Any) -> object:
        """Get ready to read without blocking writers."""

    def begin_brief_reading(self, driver: Any, seconds: float) -> object:
        """The same for pages: statements have this time limit, and plans do not depend on statistics."""

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
        """Insert a batch into one or several tables."""

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
        """Make the transaction fail if this does not hold; the failure may come later, which saves a wait."""

    def assume_changed(self, tx: Transaction, update: str, expected: int, parameters: Parameters) -> None:
        """Make the transaction fail if this changes more or fewer rows; the failure may come later, which saves a
        wait."""

    def lock_patience(self, seconds: float) -> str | None:
        """The statement that sets the lock timeout of a transaction; the caller resets it with a second one."""

    def is_transient(self, error: BaseException) -> bool:
        """True for a deadlock, serialization failure or lock timeout: the same transaction may succeed next time."""

    def is_disconnect(self, error: BaseException) -> bool:
        """True if the connection is lost; whether a commit under way took place is unknown."""

    def is_failed_assumption(self, error: BaseException) -> bool:
        """True if an assumption of the transaction was wrong."""

    def is_duplicate(self, error: BaseException) -> bool:
        """True if a unique key refused the row."""
