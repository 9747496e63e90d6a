"""PostgreSQL through psycopg 3: JSON recordsets for batches, one fused statement for a claim."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import psycopg
from pydantic_core import to_json

from penstock.database.dialect import ALL_PARTS, Ahead, BatchWrite, Lane, Parameters
from penstock.database.postgres import statements
from penstock.database.postgres.pipeline import (
    FORGOTTEN,
    IDLE,
    IdLoader,
    OpenTransaction,
    TimeLimitedConnection,
    Wire,
    array_text,
)
from penstock.database.postgres.statements import (
    ALL_SUCCEED,
    ONE_IS_TO_SUCCEED,
    ONE_SUCCEEDS,
    SUCCEED,
    TAKE_READY,
    TAKE_READY_OF_ONE,
)
from penstock.database.server_probe import Probe, Sessions
from penstock.database.templates import ListType, ParamStyle, Rendered, Renderer
from penstock.database.url import for_libpq
from penstock.values.fork_safety import register_reset_after_fork

if TYPE_CHECKING:
    from penstock.database.transaction import Transaction
    from penstock.database.url import Url
    from penstock.settings import Settings

log = logging.getLogger("penstock")

TRANSACTION_TIMEOUT_SINCE = 170_000
TRANSIENT_STATES = frozenset({"40001", "40P01", "55P03", "57014", "53300", "57P03", FORGOTTEN})
WIRE = "_penstock_wire"
PREPARED_FROM = 5
SHORTEST_CONNECT = 2
"""Seconds; psycopg takes less for this."""
REFUSED = "unsupported startup parameter"
"""As PgBouncer says it, and others that are made like it."""
POOLER = (
    "a pooler stands before the database, of which the setting pooler says nothing: Penstock keeps nothing beyond a "
    'transaction, and polls. Set pooler to "transaction", or to "session" if that is its mode; listen_url can name a '
    "direct way to hear of new work at once"
)
AT_WORK = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND state IS DISTINCT FROM 'idle'
  AND state IS DISTINCT FROM 'idle in transaction' AND state IS DISTINCT FROM 'idle in transaction (aborted)'
"""
ARRAY_TYPES: dict[ListType, str] = {"uuid": "uuid[]", "text": "text[]", "int": "bigint[]"}

# A queue is often empty when statistics are taken and full when they are used: a claim planned by them sorts all that
# is ready. By this every row is found through an index; and as no plan can be better, none is made twice.
BY_INDEX = dict.fromkeys(("enable_seqscan", "enable_bitmapscan", "jit"), "off")
BY_INDEX["plan_cache_mode"] = "force_generic_plan"
BY_INDEX["max_parallel_workers_per_gather"] = "0"
BY_INDEX_HERE = "".join(f"; SET LOCAL {name} = {value}" for name, value in BY_INDEX.items())
SNAPSHOT = "SELECT CAST(pg_current_snapshot() AS text)"
GO_BY_INDEX = "SELECT " + ", ".join(
    f"set_config('{name}', '{value}', true)" for name, value in BY_INDEX.items()
)
PAGE_SETTINGS = dict.fromkeys(
    [f"enable_{way}" for way in ("seqscan", "bitmapscan", "mergejoin", "hashjoin", "material")], "off"
)
PAGE_SETTINGS |= {"plan_cache_mode": "force_custom_plan", "max_parallel_workers_per_gather": "0"}
LOOK_UP_EACH = "SELECT " + ", ".join(
    f"set_config('{name}', '{value}', true)" for name, value in PAGE_SETTINGS.items()
)
"""A page joins a few rows with theirs: a merge, a hash or a copy would read the other table, from its end or whole.
It is planned for its own values: what is right for a pipeline with a million runs is wrong for one without any. And it
has no helpers: without those joins a plan looks expensive, and PostgreSQL would start two processes for fifty rows."""


class Postgres:
    """PostgreSQL 13 and newer."""

    name = "postgresql"
    style: ParamStyle = "pyformat"
    # statement_timestamp() is stable, so that an index can be used where clock_timestamp() would forbid it.
    now = "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"
    lock = "FOR UPDATE"
    lock_skip = "FOR UPDATE SKIP LOCKED"
    by_key = ""
    quote = '"'
    lateral = True
    probes_in_recursion = True
    fast_path = ALL_PARTS
    pipelines_statements = True
    pushes_wakeups = True
    keeps_dead_rows = True
    in_memory = False
    is_pooled = False
    locks_on_one_node = False
    undoes_for_others = False
    one_writer = False

    def __init__(self, settings: Settings) -> None:
        self.own_style: ParamStyle = "numbered"
        self.pooled_begin = ""
        self.pooler_noticed = False
        """True if a pooler was detected that the settings do not name."""
        self._settings = settings
        self._options = _options(settings)
        self._arguments: dict[str, Any] = {}
        self._several = False
        """True if the URL names several hosts."""
        self._last = ("", 0)
        """The host that was reached last, which is tried first."""
        self._probe = Probe(self._at_work)
        self.reset_after_fork()
        register_reset_after_fork(self)
        if settings.pooler == "transaction":
            self._keep_nothing()
        self._dedicated: WeakSet[Any] = WeakSet()
        self._longest = settings.statement_timeout * 4
        """A transaction of several statements in one round trip, each with its own timeout, takes no longer."""

    def reset_after_fork(self) -> None:
        """In a forked child the lock may be held, in a thread that is the parent's."""
        self._lock = threading.Lock()

    def _keep_nothing(self) -> None:
        """Behind a transaction pooler nothing outlives a transaction: each one sets what it needs."""
        wanted = "; ".join(f"SET LOCAL {name} = {value}" for name, value in _needs(self._settings).items())
        self.own_style = "pyformat"
        self.pooled_begin = f"BEGIN; {wanted}"
        self.is_pooled = True

    def open(self, url: Url, settings: Settings) -> Any:
        return self.connect(**for_libpq(url) | self.engine_options(url, settings)["connect_args"])

    def close(self, driver: Any) -> None:
        driver.close()

    def engine_options(self, url: Url, settings: Settings) -> dict[str, Any]:
        hosts = str(url.query.get("host", "")).count(",") + 1
        arguments: dict[str, Any] = {
            # For each of them in turn: all together have the time that was set.
            "connect_timeout": max(SHORTEST_CONNECT, int(settings.connect_timeout / hosts)),
            "application_name": "penstock",
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": int(settings.statement_timeout * 2000),
            # After a rollback psycopg would forget what it has prepared, and what the wire has with it.
            "prepare_threshold": None,
        }
        if settings.pooler == "none" and not self.pooled_begin:
            arguments["options"] = self._options
        ours = {name: value for name, value in arguments.items() if name not in url.query}
        # The wire speaks nothing else; the server or the environment may be of another opinion.
        return {"connect_args": ours | {"client_encoding": "utf8"}}

    def connect(self, *args: Any, **named: Any) -> TimeLimitedConnection:
        """A connection that is known to be direct, or treated as one through a pooler."""
        self._several = "," in str(named.get("host", ""))
        named = (_first(self._last, named) if self._several else named) | {"autocommit": True}
        connection = self._reached(args, named)
        try:
            connection.patience = self._settings.connect_timeout
            self._introduce(connection)
        except BaseException:
            connection.close()
            raise
        self._arguments, self._last = named, _place(connection)
        connection.patience = None
        connection.autocommit = False
        connection.probe = self._probe
        return connection

    def _reached(self, args: Any, named: dict[str, Any]) -> TimeLimitedConnection:
        try:
            return TimeLimitedConnection.connect(*args, **self._without_refused(named))
        except psycopg.OperationalError as error:
            ours = named.get("options") == self._options
            if REFUSED not in str(error) or self.pooled_begin or not ours:
                raise
        self._notice_pooler()
        return TimeLimitedConnection.connect(*args, **self._without_refused(named))

    def _without_refused(self, named: dict[str, Any]) -> dict[str, Any]:
        """A pooler refuses what a connection would begin with; what a user has asked for in the URL is theirs."""
        if self.pooled_begin and named.get("options") == self._options:
            return {name: value for name, value in named.items() if name != "options"}
        return named

    def _introduce(self, connection: TimeLimitedConnection) -> None:
        """Detect a pooler: the server's pid, when asked, differs from the one that it sent at the start."""
        if self._settings.pooler == "session":
            connection.execute(
                "; ".join(f"SET {name} = {value}" for name, value in _needs(self._settings).items())
            )
        elif not self.pooled_begin:
            row = connection.execute("SELECT pg_backend_pid()").fetchone()
            if row is not None and int(row[0]) == connection.pgconn.backend_pid:
                connection.session = (*_place(connection), connection.pgconn.backend_pid)
            else:
                self._notice_pooler()

    def _notice_pooler(self) -> None:
        with self._lock:
            noticed, self.pooler_noticed = self.pooler_noticed, True
        if not noticed:
            self._keep_nothing()
            log.warning(POOLER)

    def _at_work(self) -> Sessions:
        """Which sessions of this database are at work, by a connection of its own."""
        with TimeLimitedConnection.connect(**self._without_refused(self._arguments)) as connection:
            connection.patience = self._settings.connect_timeout
            self._last = _place(connection)
            pids = [int(pid) for (pid,) in connection.execute(AT_WORK).fetchall()]
            return frozenset((*_place(connection), pid) for pid in pids)

    def connected(self, driver: Any) -> None:
        """As the driver makes it: SQLAlchemy's statements, the user's among them, run on the same connections."""

    def on_checkout(self, driver: Any) -> None:
        driver.patience = None
        if driver.autocommit:
            driver.autocommit = False

    def dedicate(self, driver: Any, patience: float | None) -> bool:
        wire = self._wire(driver)
        if patience is not None:
            wire.patience = min(patience, self._longest)
        if self.pooled_begin:
            self._dedicated.add(driver)
            return True
        driver.prepare_threshold = PREPARED_FROM  # safe: no other code rolls back on this connection
        wanted = dict(BY_INDEX)
        if driver.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
            # Inside a pipeline no other timeout applies: a process that freezes there must not keep its locks.
            wanted["transaction_timeout"] = str(int(self._longest * 1000))
        opened = OpenTransaction(driver, wire, block=False)
        for name, value in wanted.items():
            opened.execute(f"SET {name} = {value}", ())
        opened.commit()
        return True

    def go_by_index(self, tx: Transaction) -> None:
        tx.run(GO_BY_INDEX)

    def execute(self, driver: Any, opened: object, sql: str, parameters: Parameters) -> Any:
        if isinstance(opened, OpenTransaction):
            return opened.execute(sql, list(parameters.values()))
        cursor = driver.cursor()
        if isinstance(cursor, psycopg.Cursor):
            cursor.adapters.register_loader("uuid", IdLoader)
        cursor.execute(sql, parameters)
        return cursor

    def use_driver_cursors(self, opened: object) -> None:
        if isinstance(opened, OpenTransaction):
            opened.use_driver_cursors()

    def among(self, parameter: str, kind: ListType) -> str:
        return f"= ANY(CAST({parameter} AS {ARRAY_TYPES[kind]}))"

    def list_value(self, values: Sequence[object], kind: ListType) -> object:
        if kind == "text":
            return list(values)
        return "{" + ",".join(map(str, values)) + "}"

    def begin(self, driver: Any) -> object:
        """Begin. A statement whose result is not needed at once is sent together with the next one whose result is."""
        if self.pooled_begin:
            driver.autocommit = True
            driver.patience = self._wire(driver).patience
            driver.execute(self.pooled_begin + (BY_INDEX_HERE if driver in self._dedicated else ""))
            return None
        return OpenTransaction(driver, self._wire(driver), block=True)

    def begin_single(self, driver: Any) -> object:
        if self.pooled_begin:
            return self.begin(driver)
        return OpenTransaction(driver, self._wire(driver), block=False)

    def begin_reading(self, driver: Any) -> object:
        return self.begin_single(driver)

    def begin_brief_reading(self, driver: Any, seconds: float) -> object:
        opened = self.begin(driver)
        brief = f"SET LOCAL statement_timeout = {int(seconds * 1000)}"
        if isinstance(opened, OpenTransaction):
            opened.execute(brief, ())
            opened.execute(LOOK_UP_EACH, ())
        else:
            driver.execute(f"{brief}; {LOOK_UP_EACH}")
        return opened

    def end_brief_reading(self, driver: Any) -> None:
        """Nothing outlives the transaction."""

    def commit_stamp(self, tx: Transaction) -> str | None:
        """The snapshot: it is the same as long as no transaction that wrote has ended."""
        row = tx.row(SNAPSHOT)
        return str(row[0]) if row else None

    def flush(self, opened: object) -> None:
        if isinstance(opened, OpenTransaction):
            opened.send()
            opened.wire.pgconn.flush()

    def wait(self, opened: object) -> None:
        if isinstance(opened, OpenTransaction):
            opened.wait()

    def commit(self, driver: Any, opened: object) -> None:
        if isinstance(opened, OpenTransaction):
            opened.commit()
        elif driver.info.transaction_status != IDLE:
            driver.execute("COMMIT")

    def rollback(self, driver: Any, opened: object) -> None:
        if isinstance(opened, OpenTransaction):
            opened.rollback()
        elif driver.info.transaction_status != IDLE:
            driver.execute("ROLLBACK")

    def _wire(self, driver: Any) -> Wire:
        """The connection keeps its wire, which refers to the connection: a table of ours would keep both for ever."""
        found: Wire | None = getattr(driver, WIRE, None)
        if found is None:
            found = Wire(driver, self._longest)
            setattr(driver, WIRE, found)
        return found

    def write(
        self,
        tx: Transaction,
        renderer: Renderer,
        writes: BatchWrite,
        rows: Sequence[Parameters],
        shared: Parameters,
    ) -> None:
        if len(rows) == 1 and isinstance(tx.opened, OpenTransaction):
            tx.send(self._of_one_row(tx, renderer, writes), {**rows[0], **shared})
            return
        key = (writes, *rows[0])
        rendered = renderer.written.get(key)
        if rendered is None:
            template = statements.of_rows(tx.column_types, writes.tables, rows[0])
            rendered = renderer.written[key] = renderer.render(template)
        tx.send(rendered, {"batch": to_json(rows).decode(), **shared})

    def _of_one_row(self, tx: Transaction, renderer: Renderer, writes: BatchWrite) -> Rendered:
        rendered = renderer.written.get((writes,))
        if rendered is None:
            template = statements.of_one_row(tx.column_types, writes.tables)
            rendered = renderer.written[writes,] = renderer.render(template)
        return rendered

    def take_ready(
        self,
        tx: Transaction,
        lanes: Sequence[Lane],
        tasks: Sequence[str],
        limit: int,
        token: int,
        process: str,
    ) -> Ahead:
        holder = {"tasks": _names(tuple(tasks)), "token": token, "process": process}
        if len(lanes) == 1:
            (ln,) = lanes
            place = {"queue": ln.queue, "tier": ln.tier, "floor": ln.floor}
            return tx.send_ahead(TAKE_READY_OF_ONE, **place, limit=min(limit, ln.limit), **holder)
        wanted = [{"queue": ln.queue, "tier": ln.tier, "floor": ln.floor, "cap": ln.limit} for ln in lanes]
        return tx.send_ahead(TAKE_READY, lanes=to_json(wanted).decode(), limit=limit, **holder)

    def succeed(
        self, tx: Transaction, rows: Sequence[Parameters], process: str | None, finished_tokens: Sequence[int]
    ) -> Ahead:
        tokens = self.list_value(finished_tokens, "int")
        if len(rows) == 1:
            one = ONE_IS_TO_SUCCEED if tx.optimistic else ONE_SUCCEEDS
            return tx.send_ahead(one, **rows[0], process=process, tokens=tokens)
        template, expected = (ALL_SUCCEED, {"expected": len(rows)}) if tx.optimistic else (SUCCEED, {})
        batch = to_json(rows).decode()
        return tx.send_ahead(template, batch=batch, process=process, tokens=tokens, **expected)

    def assume(self, tx: Transaction, condition: str, parameters: Parameters) -> None:
        tx.run(statements.failing_unless(condition), **parameters)

    def assume_changed(self, tx: Transaction, update: str, expected: int, parameters: Parameters) -> None:
        tx.run(statements.failing_unless_changed(update), expected=expected, **parameters)

    def lock_patience(self, seconds: float) -> str | None:
        return f"SET LOCAL lock_timeout = {max(1, int(seconds * 1000))}"

    def is_transient(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.Error) and error.sqlstate in TRANSIENT_STATES

    def is_disconnect(self, error: BaseException) -> bool:
        if isinstance(error, psycopg.errors.IdleInTransactionSessionTimeout):
            return True  # nothing came through for too long, and the server has given us up
        if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return self._is_elsewhere(error)
        state = error.sqlstate
        return state is None or state[:2] == "08" or state[:4] == "57P0"

    def _is_elsewhere(self, error: BaseException) -> bool:
        """This host takes no writes any more; another one of those that are named does."""
        return self._several and isinstance(error, psycopg.errors.ReadOnlySqlTransaction)

    def is_failed_assumption(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.errors.DivisionByZero)

    def is_duplicate(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.errors.UniqueViolation)


@lru_cache(16)
def _names(tasks: tuple[str, ...]) -> str:
    """A worker's tasks are the same at every claim."""
    return array_text(tasks)


def _place(connection: TimeLimitedConnection) -> tuple[str, int]:
    return connection.info.host, connection.info.port


def _first(place: tuple[str, int], named: dict[str, Any]) -> dict[str, Any]:
    """The hosts in their order, but for the one that did last time: the first may be frozen, and costs its timeout."""
    hosts, ports = str(named["host"]).split(","), str(named.get("port", "")).split(",")
    if len(hosts) != len(ports):
        return named
    pairs = sorted(zip(hosts, ports, strict=True), key=lambda pair: pair != (place[0], str(place[1])))
    return named | {"host": ",".join(host for host, _ in pairs), "port": ",".join(port for _, port in pairs)}


def _options(settings: Settings) -> str:
    """As a connection begins with it."""
    return " ".join(f"-c {name}={value}" for name, value in _needs(settings).items())


def _needs(settings: Settings) -> dict[str, int | str]:
    """The session settings that every connection of ours needs, whatever the server or the role is set to."""
    statement = int(settings.statement_timeout * 1000)
    return {
        "datestyle": "ISO",  # psycopg reads no other
        "statement_timeout": statement,
        "lock_timeout": int(settings.lock_timeout * 1000),
        "idle_in_transaction_session_timeout": statement * 2,
        # A host that vanished in the middle of a transaction must not keep its locks for hours.
        "tcp_keepalives_idle": 10,
        "tcp_keepalives_interval": 5,
        "tcp_keepalives_count": 3,
    }
