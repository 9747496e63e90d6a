"""MySQL 8 and MariaDB 10.6+ through PyMySQL.

Every connection reads committed data only: under the default isolation, polling an empty queue takes gap locks that
block every enqueue into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from math import ceil
from typing import TYPE_CHECKING, Any

from pymysql.constants import CLIENT, SERVER_STATUS
from pymysql.cursors import Cursor
from pymysql.err import IntegrityError, InterfaceError, MySQLError, OperationalError

from penstock.database import cursor_dialect, error_advice
from penstock.database.cursor_dialect import ByCursor
from penstock.database.dialect import FIELD, BatchWrite, Parameters, TableWrite
from penstock.database.mysql_connection import ProbedConnection
from penstock.database.server_probe import Probe, Sessions
from penstock.database.templates import ListType, ParamStyle, Renderer
from penstock.database.user.cursors import as_text

if TYPE_CHECKING:
    from penstock.database.transaction import Transaction
    from penstock.database.url import Url
    from penstock.settings import Settings


# The names themselves: `install_as_MySQLdb()`, as Django users call it, makes `pymysql.err` lead elsewhere later.


ROLLED_BACK_AT_COMMIT = frozenset({3100, 3101, 3797, 3798})
"""Group Replication: another member's transaction went first, or this member is leaving the group."""
TRANSIENT_ERRORS = ROLLED_BACK_AT_COMMIT | {
    *(1020, 1040, 1047, 1180, 1205, 1213, 1290, 1317, 1412, 1615, 1969, 3024, 3572)
}
DISCONNECTS = frozenset(
    {0, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1927, 2002, 2003, 2006, 2013, 2014, 2055, 4031}
)
DUPLICATE = 1062
READ_ONLY = 1290
ELSEWHERE = frozenset({1047, READ_ONLY, 1836})
"""Errors of a node that takes no writes, or no statements at all."""
PLACE = ("host", "port")
DEFAULT_CONNECT = 10
BATCH_BYTES = 1_000_000
"""Larger statements are no faster."""
OVERHEAD = 1000
"""Of a statement beside its rows."""
BATCH_ROWS = 500
CLUSTER = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_single_primary_mode')"
LOG_PLACE = """
SHOW GLOBAL STATUS WHERE Variable_name IN ('Innodb_lsn_current', 'Innodb_redo_log_current_lsn', 'Innodb_os_log_written')
"""
SEVERAL_WRITERS = frozenset({("wsrep_on", "ON"), ("group_replication_single_primary_mode", "OFF")})
"""Galera, and Group Replication with several primaries."""
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
    # With old statistics a queue seems empty and a scan cheap; a scan would wait for every row that others have locked.
    by_key = "FORCE INDEX (PRIMARY)"
    quote = "`"  # also where sql_mode has ANSI_QUOTES
    remove = REMOVE
    probes_in_recursion = False
    pushes_wakeups = False
    keeps_dead_rows = True
    in_memory = False
    one_writer = False

    def __init__(
        self, statement_timeout: float, lock_timeout: float, hosts: Sequence[tuple[str, int]] = ()
    ) -> None:
        self.statement_timeout = statement_timeout
        self.lock_timeout = lock_timeout
        self.hosts = list(hosts)
        """Several hosts: one that takes writes is used; the one used last is tried first."""
        self.packet = BATCH_BYTES * 2
        self._arguments: dict[str, Any] = {}
        self._probe = Probe(self._at_work)
        self.locks_on_one_node = self.undoes_for_others = False

    def open(self, url: Url, settings: Settings) -> Any:
        if url.query:
            return None
        arguments: dict[str, Any] = url.parts | self.engine_options(url, settings)["connect_args"]
        # As SQLAlchemy has it: a write counts the rows that it found, also those that were as they should be.
        return self.connect(**arguments, client_flag=CLIENT.FOUND_ROWS)

    def connect(self, *args: Any, **named: Any) -> Any:
        """Connect, with the password as UTF-8 like other clients: PyMySQL would encode it as Latin-1."""
        if isinstance(password := named.get("password"), str):
            named["password"] = password.encode()
        self._arguments = named
        failure: Exception | None = None
        hosts: list[tuple[str, int] | None] = [*self.hosts] or [None]
        for host in hosts:
            try:
                connection = self._reached(
                    named if host is None else named | dict(zip(PLACE, host, strict=True))
                )
            except MySQLError as error:
                failure = error
                if not (host and self.is_disconnect(error)):
                    break
                continue
            if host:
                self.hosts.sort(key=lambda each: each != host)
            return connection
        assert failure is not None
        raise failure

    def _reached(self, named: dict[str, Any]) -> ProbedConnection:
        """Connect to a host that takes writes, if there are several."""
        connection = ProbedConnection(**named, defer_connect=True)
        try:
            connection.reach(named.get("connect_timeout", DEFAULT_CONNECT))
            if self.hosts:
                _refuse_standby(connection)
        except BaseException:
            error_advice.ignore_errors(connection.close)
            raise
        connection.probe = self._probe
        return connection

    def _at_work(self) -> Sessions:
        """The sessions that are at work, read on a new connection; a user always sees its own sessions."""
        with closing(self.connect(**self._arguments)) as connection, connection.cursor() as cursor:
            connection.probe = None
            connection._read_timeout = self._arguments.get("connect_timeout", DEFAULT_CONNECT)
            cursor.execute("SHOW PROCESSLIST")
            return frozenset(
                (connection.host, connection.port, int(row[0]))
                for row in cursor.fetchall()
                if row[4] != "Sleep"
            )

    def engine_options(self, url: Url, settings: Settings) -> dict[str, Any]:
        limit = int(settings.statement_timeout) + 5
        arguments = {
            # The timeout is divided among the hosts, which are tried in turn.
            "connect_timeout": max(1, int(settings.connect_timeout / max(1, len(url.hosts)))),
            "read_timeout": limit,
            "write_timeout": limit,
            "charset": "utf8mb4",
        }
        return {"connect_args": arguments}

    def connected(self, driver: Any) -> None:
        with driver.cursor() as cursor:
            cursor.execute("SELECT CONNECTION_ID(), @@max_allowed_packet")
            session, packet = cursor.fetchall()[0]
            self.packet = int(packet)
            driver.session = (driver.host, driver.port, session) if session == driver.thread_id() else None
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {max(1, int(self.lock_timeout))}")
            self._limit(driver, self.statement_timeout)
            if "mariadb" in driver.get_server_info().lower():
                # A process that freezes in the middle of a transaction must not keep its locks for ever.
                idle = max(1, int(self.statement_timeout * 2))
                cursor.execute(f"SET SESSION idle_transaction_timeout = {idle}")
            if not self.locks_on_one_node:
                cursor.execute(CLUSTER)
                several = not SEVERAL_WRITERS.isdisjoint(cursor.fetchall())
                self.locks_on_one_node = self.undoes_for_others = several

    def on_checkout(self, driver: Any) -> None:
        """Roll back a transaction that was left open: a node that lost its cluster may have refused the rollback."""
        if driver.server_status & SERVER_STATUS.SERVER_STATUS_IN_TRANS:
            driver.rollback()

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

    def begin_brief_reading(self, driver: Any, seconds: float) -> None:
        self._limit(driver, seconds)

    def end_brief_reading(self, driver: Any) -> None:
        self._limit(driver, self.statement_timeout)

    def _limit(self, driver: Any, seconds: float) -> None:
        with driver.cursor() as cursor:
            if "mariadb" in driver.get_server_info().lower():
                cursor.execute(f"SET SESSION max_statement_time = {seconds}")
            else:
                cursor.execute(f"SET SESSION max_execution_time = {int(seconds * 1000)}")

    def commit_stamp(self, tx: Transaction) -> str | None:
        """The place in the redo log, which every commit moves. Another name for it on MySQL; older ones lack it."""
        with tx.driver.cursor() as cursor:
            cursor.execute(LOG_PLACE)
            return " ".join(str(value) for _, value in sorted(cursor.fetchall())) or None

    def commit(self, driver: Any, opened: object) -> None:
        driver.commit()

    def rollback(self, driver: Any, opened: object) -> None:
        driver.rollback()

    def write(
        self,
        tx: Transaction,
        renderer: Renderer,
        writes: BatchWrite,
        rows: Sequence[Parameters],
        shared: Parameters,
    ) -> None:
        for write in writes.tables:
            first = next(iter(write.columns))
            ending = f" ON DUPLICATE KEY UPDATE {first} = {first}" if write.ignore_duplicates else ""
            for part in _parts(rows, write, shared, self.packet):
                _insert(tx, renderer, write, ending, part, shared)

    def lock_patience(self, seconds: float) -> str | None:
        return f"SET SESSION innodb_lock_wait_timeout = {max(1, ceil(seconds))}"

    def is_transient(self, error: BaseException) -> bool:
        return isinstance(error, MySQLError) and _code(error) in TRANSIENT_ERRORS

    def is_disconnect(self, error: BaseException) -> bool:
        if isinstance(error, InterfaceError):
            return True
        if self.hosts and isinstance(error, MySQLError) and _code(error) in ELSEWHERE:
            return True  # another host may take it
        return isinstance(error, OperationalError) and _code(error) in DISCONNECTS

    def is_duplicate(self, error: BaseException) -> bool:
        return isinstance(error, IntegrityError) and _code(error) == DUPLICATE


def _code(error: MySQLError) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else -1


def _refuse_standby(connection: ProbedConnection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@global.read_only, @@global.innodb_read_only")
        if any(map(int, cursor.fetchall()[0])):
            raise OperationalError(READ_ONLY, f"{connection.host}:{connection.port} is read-only")


def _parts(
    rows: Sequence[Parameters], write: TableWrite, shared: Parameters, packet: int
) -> list[list[Parameters]]:
    """Split rows into parts that fit a packet even if every letter is escaped; refuse a row that never fits."""
    values = [value for text in write.columns.values() for value in FIELD.findall(text)]
    each = sum(map(len, write.columns.values())) + sum(
        _size(shared[name]) for name in values if name in shared
    )
    most = min(BATCH_BYTES, packet // 2 - OVERHEAD)
    parts: list[list[Parameters]] = [[]]
    size = 0
    for row in rows:
        length = each + sum(_size(row[name]) for name in values if name not in shared)
        if length + OVERHEAD > packet:
            raise OperationalError(
                error_advice.TOO_LARGE,
                f"a row of {length:,} bytes is more than this server takes at once: max_allowed_packet is {packet:,}. "
                "Raise that on the server, or keep large values elsewhere and pass where they are",
            )
        if len(parts[-1]) >= BATCH_ROWS or (parts[-1] and size + length > most):
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += length
    return parts


def _size(value: object) -> int:
    """The size of a value in bytes, before escaping."""
    if not isinstance(value, str):
        return 22
    return (len(value) if value.isascii() else len(value.encode())) + 3


def _insert(
    tx: Transaction,
    renderer: Renderer,
    write: TableWrite,
    ending: str,
    rows: Sequence[Parameters],
    shared: Parameters,
) -> None:
    """One statement with a row of values for each; parameters are numbered by row."""
    head, _, values = cursor_dialect.insert_template(write).partition(" VALUES ")
    used = {name for name in FIELD.findall(values) if name not in shared}

    def numbered(index: int) -> str:
        return FIELD.sub(lambda match: f"{match[0]}_{index}" if match[1] in used else match[0], values)

    parameters = dict(shared) | {
        f"{name}_{index}": row[name] for index, row in enumerate(rows) for name in used
    }
    all_values = ", ".join(numbered(index) for index in range(len(rows)))
    tx.execute_rendered(renderer.make(f"{head} VALUES {all_values}{ending}"), parameters)


# PyMySQL's plain cursor, which returns rows as tuples whatever cursor class the connection has.


class TextCursor(Cursor):
    """Returns texts as `str`, also on a connection that returns bytes."""

    def fetchall(self) -> tuple[tuple[Any, ...], ...]:
        return tuple([as_text(self, row) for row in super().fetchall()])
