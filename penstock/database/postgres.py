"""PostgreSQL through psycopg 3: JSON recordsets for batches, one fused statement for a claim."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet

import psycopg
from pydantic_core import to_json

from penstock.database import batches
from penstock.database.dialect import Ahead, Lane, Parameters, Writes
from penstock.database.fused import (
    ALL_SUCCEED,
    ONE_IS_TO_SUCCEED,
    ONE_SUCCEEDS,
    SUCCEED,
    TAKE_READY,
    TAKE_READY_OF_ONE,
)
from penstock.database.open_transaction import IDLE, OpenTransaction
from penstock.database.patient import Patient
from penstock.database.template import ListType, ParamStyle, Rendered, Renderer
from penstock.database.url import for_libpq
from penstock.database.wire import FORGOTTEN, IdLoader, Wire, array_text
from penstock.values.forks import forget_after_fork

if TYPE_CHECKING:
    from penstock.database.transaction import Transaction
    from penstock.database.url import Url
    from penstock.settings import Settings

TRANSACTION_TIMEOUT_SINCE = 170_000
TRANSIENT_STATES = frozenset({"40001", "40P01", "55P03", "57014", "53300", "57P03", FORGOTTEN})
PREPARED_FROM = 5
ARRAY_TYPES: dict[ListType, str] = {"uuid": "uuid[]", "text": "text[]", "int": "bigint[]"}

# A queue is often empty when statistics are taken and full when they are used: a claim planned by them sorts all that
# is ready. By this every row is found through an index; and as no plan can be better, none is made twice.
BY_INDEX = dict.fromkeys(("enable_seqscan", "enable_bitmapscan", "jit"), "off")
BY_INDEX["plan_cache_mode"] = "force_generic_plan"
BY_INDEX_HERE = "".join(f"; SET LOCAL {name} = {value}" for name, value in BY_INDEX.items())
GO_BY_INDEX = "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)"


class Postgres:
    """PostgreSQL 13 and newer."""

    name = "postgresql"
    style: ParamStyle = "pyformat"
    # statement_timestamp() is stable, so that an index can be used where clock_timestamp() would forbid it.
    now = "CAST(extract(epoch FROM statement_timestamp()) * 1000000 AS bigint)"
    lock = "FOR UPDATE"
    lock_skip = "FOR UPDATE SKIP LOCKED"
    by_key = ""
    fuses = True
    sends_ahead = True
    pushes_wakeups = True
    keeps_dead_rows = True
    in_memory = False
    one_writer = False

    def __init__(self, settings: Settings) -> None:
        pooled = settings.pooler == "transaction"
        self.own_style: ParamStyle = "pyformat" if pooled else "numbered"
        self._wires: WeakKeyDictionary[Any, Wire] = WeakKeyDictionary()
        self.forget()
        forget_after_fork(self)
        # Behind a transaction pooler nothing outlives a transaction: each one sets its own timeouts.
        timeouts = "; ".join(f"SET LOCAL {name} = {value}" for name, value in _timeouts(settings).items())
        self.pooled_begin = f"BEGIN; {timeouts}" if pooled else ""
        self._dedicated: WeakSet[Any] = WeakSet()
        self._longest = settings.statement_timeout * 4
        """A transaction of several statements in one journey, each of which has its own timeout, takes no longer."""

    def forget(self) -> None:
        """In a forked child the lock may be held, in a thread that is the parent's."""
        self._lock = threading.Lock()

    def open(self, url: Url, settings: Settings) -> Any:
        return Patient.connect(**for_libpq(url) | self.engine_options(url, settings)["connect_args"])

    def close(self, driver: Any) -> None:
        driver.close()

    def engine_options(self, url: Url, settings: Settings) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "connect_timeout": max(1, int(settings.connect_timeout)),
            "application_name": "penstock",
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": int(settings.statement_timeout * 2000),
            # After a rollback psycopg would forget what it has prepared, and what the wire has with it.
            "prepare_threshold": None,
        }
        if settings.pooler != "transaction":
            arguments["options"] = " ".join(
                f"-c {name}={value}" for name, value in _timeouts(settings).items()
            )
        ours = {name: value for name, value in arguments.items() if name not in url.query}
        # The wire speaks nothing else; the server or the environment may be of another opinion.
        return {"connect_args": ours | {"client_encoding": "utf8"}}

    def connect(self, *args: Any, **named: Any) -> Patient:
        return Patient.connect(*args, **named)

    def connected(self, driver: Any) -> None:
        """As the driver makes it: SQLAlchemy's statements, the user's among them, run on the same connections."""

    def checked_out(self, driver: Any) -> None:
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
        driver.prepare_threshold = PREPARED_FROM  # nobody rolls back behind our back here
        wanted = dict(BY_INDEX)
        if driver.info.server_version >= TRANSACTION_TIMEOUT_SINCE:
            # In the middle of a journey no other timeout counts: whoever freezes there must not keep its locks.
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

    def lend(self, opened: object) -> None:
        if isinstance(opened, OpenTransaction):
            opened.lend()

    def among(self, parameter: str, kind: ListType) -> str:
        return f"= ANY(CAST({parameter} AS {ARRAY_TYPES[kind]}))"

    def list_value(self, values: Sequence[object], kind: ListType) -> object:
        if kind == "text":
            return list(values)
        return "{" + ",".join(map(str, values)) + "}"

    def begin(self, driver: Any) -> object:
        """Statements whose result nobody waits for travel with the next one that is waited for."""
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

    def hasten(self, opened: object) -> None:
        if isinstance(opened, OpenTransaction):
            opened.send()
            opened.wire.pgconn.flush()

    def wait(self, opened: object) -> None:
        if isinstance(opened, OpenTransaction):
            opened.wait()

    def wait_for_answers(self, opened: object) -> None:
        if isinstance(opened, OpenTransaction):
            opened.wait_for_answers()

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
        found = self._wires.get(driver)
        if found is None:
            with self._lock:
                found = self._wires[driver] = Wire(driver, self._longest)
        return found

    def write(
        self,
        tx: Transaction,
        renderer: Renderer,
        writes: Writes,
        rows: Sequence[Parameters],
        shared: Parameters,
    ) -> None:
        if len(rows) == 1 and isinstance(tx.opened, OpenTransaction):
            tx.send(self._of_one_row(tx, renderer, writes), {**rows[0], **shared})
            return
        key = (writes, *rows[0])
        rendered = renderer.written.get(key)
        if rendered is None:
            template = batches.of_rows(tx.column_types, writes.tables, rows[0])
            rendered = renderer.written[key] = renderer.render(template)
        tx.send(rendered, {"batch": to_json(rows).decode(), **shared})

    def _of_one_row(self, tx: Transaction, renderer: Renderer, writes: Writes) -> Rendered:
        rendered = renderer.written.get((writes,))
        if rendered is None:
            template = batches.of_one_row(tx.column_types, writes.tables)
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
            return tx.early(TAKE_READY_OF_ONE, **place, limit=min(limit, ln.limit), **holder)
        wanted = [{"queue": ln.queue, "tier": ln.tier, "floor": ln.floor, "cap": ln.limit} for ln in lanes]
        return tx.early(TAKE_READY, lanes=to_json(wanted).decode(), limit=limit, **holder)

    def succeed(
        self, tx: Transaction, rows: Sequence[Parameters], process: str | None, finished_tokens: Sequence[int]
    ) -> Ahead:
        tokens = self.list_value(finished_tokens, "int")
        if len(rows) == 1:
            one = ONE_IS_TO_SUCCEED if tx.presumes else ONE_SUCCEEDS
            return tx.ahead(one, **rows[0], process=process, tokens=tokens)
        template, expected = (ALL_SUCCEED, {"expected": len(rows)}) if tx.presumes else (SUCCEED, {})
        batch = to_json(rows).decode()
        return tx.ahead(template, batch=batch, process=process, tokens=tokens, **expected)

    def lock_patience(self, seconds: float) -> str | None:
        return f"SET LOCAL lock_timeout = {max(1, int(seconds * 1000))}"

    def is_transient(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.Error) and error.sqlstate in TRANSIENT_STATES

    def is_disconnect(self, error: BaseException) -> bool:
        if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return False
        state = error.sqlstate
        return state is None or state[:2] == "08" or state[:4] == "57P0"

    def is_presumption(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.errors.DivisionByZero)

    def is_duplicate(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.errors.UniqueViolation)


@lru_cache(16)
def _names(tasks: tuple[str, ...]) -> str:
    """A worker's tasks are the same at every claim."""
    return array_text(tasks)


def _timeouts(settings: Settings) -> dict[str, int]:
    statement = int(settings.statement_timeout * 1000)
    return {
        "statement_timeout": statement,
        "lock_timeout": int(settings.lock_timeout * 1000),
        "idle_in_transaction_session_timeout": statement * 2,
        # A host that vanished in the middle of a transaction must not keep its locks for hours.
        "tcp_keepalives_idle": 10,
        "tcp_keepalives_interval": 5,
        "tcp_keepalives_count": 3,
    }
