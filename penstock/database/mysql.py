"""MySQL 8 and MariaDB 10.6+ through PyMySQL.

Every connection reads committed data only: under the default isolation, polling an empty queue takes gap locks that
block every enqueue into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import CLIENT

# The names themselves: `install_as_MySQLdb()`, as Django users call it, makes `pymysql.err` lead elsewhere later.
from pymysql.err import IntegrityError, InterfaceError, MySQLError, OperationalError

from penstock.database import portable
from penstock.database.dialect import FIELD, Parameters, TableWrite, Writes
from penstock.database.portable import ByCursor
from penstock.database.template import ListType, ParamStyle, Renderer

if TYPE_CHECKING:
    from penstock.database.transaction import Transaction
    from penstock.database.url import Url
    from penstock.settings import Settings

TRANSIENT_ERRORS = frozenset({1020, 1040, 1047, 1180, 1205, 1213, 1290, 1412, 1615, 1969, 3024, 3572})
DISCONNECTS = frozenset(
    {0, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2014, 2055, 4031}
)
DUPLICATE = 1062
BATCH_BYTES = 1_000_000
"""Well below the smallest max_allowed_packet in use."""
BATCH_ROWS = 500
REMOVE = "DELETE FROM picked USING {availabilities} AS picked {by_key} WHERE picked.seq {among:seqs:int}"
"""Only this form of DELETE takes a hint."""


class MySql(ByCursor):
    """MySQL and MariaDB."""

    name = "mysql"
    style: ParamStyle = "pyformat"
    own_style: ParamStyle = "pyformat"
    now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
    lock = "FOR UPDATE"
    lock_skip = "FOR UPDATE SKIP LOCKED"
    # By its statistics a queue is empty, and a scan of the empty is cheap: it would wait for every row others hold.
    by_key = "FORCE INDEX (PRIMARY)"
    remove = REMOVE
    pushes_wakeups = False
    keeps_dead_rows = True
    in_memory = False
    one_writer = False

    def __init__(self, statement_timeout: float, lock_timeout: float) -> None:
        self.statement_timeout = statement_timeout
        self.lock_timeout = lock_timeout

    def open(self, url: Url, settings: Settings) -> Any:
        if url.query:
            return None
        arguments: dict[str, Any] = url.parts | self.engine_options(url, settings)["connect_args"]
        # As SQLAlchemy has it: a write counts the rows that it found, also those that were as they should be.
        return self.connect(**arguments, client_flag=CLIENT.FOUND_ROWS)

    def connect(self, *args: Any, **named: Any) -> Any:
        """PyMySQL takes the letters of a password for Latin-1, where everybody else sends UTF-8."""
        if isinstance(password := named.get("password"), str):
            named["password"] = password.encode()
        return pymysql.connect(*args, **named)

    def engine_options(self, url: Url, settings: Settings) -> dict[str, Any]:
        limit = int(settings.statement_timeout) + 5
        arguments = {
            "connect_timeout": max(1, int(settings.connect_timeout)),
            "read_timeout": limit,
            "write_timeout": limit,
            "charset": "utf8mb4",
        }
        return {"connect_args": arguments}

    def connected(self, driver: Any) -> None:
        with driver.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {max(1, int(self.lock_timeout))}")
            seconds = self.statement_timeout
            if "mariadb" in driver.get_server_info().lower():
                cursor.execute(f"SET SESSION max_statement_time = {seconds}")
                # Whoever freezes in the middle of a transaction must not keep its locks for ever.
                cursor.execute(f"SET SESSION idle_transaction_timeout = {max(1, int(seconds * 2))}")
            else:
                cursor.execute(f"SET SESSION max_execution_time = {int(seconds * 1000)}")

    def dedicate(self, driver: Any, patience: float | None) -> bool:
        if patience is None:
            return False
        # PyMySQL sets them on the socket before it reads or writes, and has no other way to change them.
        driver._read_timeout = min(patience, driver._read_timeout)
        driver._write_timeout = min(patience, driver._write_timeout)
        return True

    def among(self, parameter: str, kind: ListType) -> str:
        return f"IN {parameter}"

    def list_value(self, values: Sequence[object], kind: ListType) -> object:
        return tuple(values) or (None,)

    def begin(self, driver: Any) -> None:
        """PyMySQL opens a transaction with the first statement."""

    def begin_single(self, driver: Any) -> object:
        """A claim is several statements here: it needs its transaction."""

    def begin_reading(self, driver: Any) -> None:
        """Likewise."""

    def commit(self, driver: Any, opened: object) -> None:
        driver.commit()

    def rollback(self, driver: Any, opened: object) -> None:
        driver.rollback()

    def write(
        self,
        tx: Transaction,
        renderer: Renderer,
        writes: Writes,
        rows: Sequence[Parameters],
        shared: Parameters,
    ) -> None:
        for write in writes.tables:
            first = next(iter(write.columns))
            ending = f" ON DUPLICATE KEY UPDATE {first} = {first}" if write.ignore_duplicates else ""
            for part in _parts(rows):
                _insert(tx, renderer, write, ending, part, shared)

    def lock_patience(self, seconds: float) -> str | None:
        return f"SET SESSION innodb_lock_wait_timeout = {max(1, ceil(seconds))}"

    def is_transient(self, error: BaseException) -> bool:
        return isinstance(error, MySQLError) and _code(error) in TRANSIENT_ERRORS

    def is_disconnect(self, error: BaseException) -> bool:
        if isinstance(error, InterfaceError):
            return True
        return isinstance(error, OperationalError) and _code(error) in DISCONNECTS

    def is_duplicate(self, error: BaseException) -> bool:
        return isinstance(error, IntegrityError) and _code(error) == DUPLICATE


def _code(error: MySQLError) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else -1


def _parts(rows: Sequence[Parameters]) -> list[list[Parameters]]:
    """Rows in portions that fit a packet."""
    parts: list[list[Parameters]] = [[]]
    size = 0
    for row in rows:
        length = sum(len(value) for value in row.values() if isinstance(value, str)) + 50
        if len(parts[-1]) >= BATCH_ROWS or (parts[-1] and size + length > BATCH_BYTES):
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += length
    return parts


def _insert(
    tx: Transaction,
    renderer: Renderer,
    write: TableWrite,
    ending: str,
    rows: Sequence[Parameters],
    shared: Parameters,
) -> None:
    """One statement with a row of values for each; parameters are numbered by row."""
    head, _, values = portable.insert_template(write).partition(" VALUES ")
    used = {name for name in FIELD.findall(values) if name not in shared}

    def numbered(index: int) -> str:
        return FIELD.sub(lambda match: f"{match[0]}_{index}" if match[1] in used else match[0], values)

    parameters = dict(shared) | {
        f"{name}_{index}": row[name] for index, row in enumerate(rows) for name in used
    }
    all_values = ", ".join(numbered(index) for index in range(len(rows)))
    tx.execute_rendered(renderer.make(f"{head} VALUES {all_values}{ending}"), parameters)
