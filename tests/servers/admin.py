"""Create, drop and cut off databases on a server that is already there, known by its URL.

Every test has a database made and dropped, so what that takes counts a thousand times: an admin that lives as long as
the session keeps its connection.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pymysql
from pymysql.cursors import Cursor
from pymysql.err import OperationalError
from sqlalchemy.engine import URL, make_url

from tests.servers.restore import (
    Made,
    made_on_mariadb,
    made_on_postgres,
    restored_on_mariadb,
    restored_on_postgres,
)
from tests.waiting import eventually

CONNECT_SECONDS = 5


class Admin(ABC):
    """The few things tests ask of a server; `server` is its URL, whatever database that names.

    With `keep` one connection serves for all of them, until `close()`.
    """

    def __init__(self, server: str, *, keep: bool = False) -> None:
        self.server: URL = make_url(server)
        self.keep = keep
        self._kept: Any = None

    def close(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def url(self, database: str) -> str:
        return self.server.set(database=database).render_as_string(hide_password=False)

    @abstractmethod
    def answers(self) -> bool: ...

    @abstractmethod
    def create_database(self, name: str, template: str | None = None) -> None: ...

    @abstractmethod
    def drop_database(self, name: str) -> None: ...

    @abstractmethod
    def made(self, name: str) -> Made | None:
        """What a fresh copy holds, to compare with later; None where that cannot be told."""

    @abstractmethod
    def restored(self, name: str, made: Made) -> bool:
        """Empty a copy for the next test; False if more than rows was changed, or if connections to it are left."""

    @abstractmethod
    def kill_connections(self) -> int: ...

    @abstractmethod
    def _connect(self) -> Any: ...

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        """A connection for one errand; one that failed is not kept."""
        connection, self._kept = self._kept or self._connect(), None
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        if self.keep:
            self._kept = connection
        else:
            connection.close()


class PostgresAdmin(Admin):
    def __init__(self, server: str, *, keep: bool = False) -> None:
        super().__init__(server, keep=keep)
        self._insiders: dict[str, psycopg.Connection] = {}

    def answers(self) -> bool:
        with suppress(psycopg.OperationalError), self._connection():
            return True
        return False

    def create_database(self, name: str, template: str | None = None) -> None:
        with self._connection() as connection:
            # Half the price of sending every page through the log, which newer servers do if not told.
            how = "strategy file_copy" if connection.info.server_version >= 15_00_00 else ""
            connection.execute(f"create database {name} template {template or 'template0'} {how}".encode())

    def drop_database(self, name: str) -> None:
        self._leave(name)
        with self._connection() as connection:
            _see_off(connection, name)
            connection.execute(f"drop database if exists {name} with (force)".encode())

    def made(self, name: str) -> Made | None:
        return made_on_postgres(self._inside(name))

    def restored(self, name: str, made: Made) -> bool:
        with self._connection() as connection:
            if not _see_off(connection, name, self._inside(name).info.backend_pid):
                return False
        return restored_on_postgres(self._inside(name), made)

    def _inside(self, name: str) -> psycopg.Connection:
        """A connection to that database, kept with it: to come in costs more than to look and to empty it."""
        if (kept := self._insiders.get(name)) is None or kept.closed or not _answers(kept):
            self._leave(name)
            self._insiders[name] = self._connect_to(name)
        return self._insiders[name]

    def _leave(self, name: str) -> None:
        if kept := self._insiders.pop(name, None):
            kept.close()

    def kill_connections(self) -> int:
        clients = "from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        with self._connection() as connection:
            return len(connection.execute(f"select pg_terminate_backend(pid) {clients}".encode()).fetchall())

    def _connect(self) -> psycopg.Connection:
        return self._connect_to(self.server.database or "postgres")

    def _connect_to(self, name: str) -> psycopg.Connection:
        plain = self.server.set(drivername="postgresql", database=name)
        return psycopg.connect(
            plain.render_as_string(hide_password=False), autocommit=True, connect_timeout=CONNECT_SECONDS
        )


def _see_off(connection: psycopg.Connection, name: str, insider: int = 0) -> bool:
    """Give closing connections a moment: a drop that meets one sleeps for a tenth of a second."""
    others = "select count(*) from pg_stat_activity where datname = %s and pid <> %s"
    return _soon(lambda: connection.execute(others, [name, insider]).fetchone() == (0,))


def _answers(connection: psycopg.Connection) -> bool:
    """False if a test has ended all connections to its database."""
    with suppress(psycopg.OperationalError):
        connection.execute("select 1")
        return True
    return False


def _soon(true: Callable[[], bool]) -> bool:
    with suppress(AssertionError):
        eventually(true, timeout=0.1, pause=0.002)
        return True
    return False


class MariadbAdmin(Admin):
    def answers(self) -> bool:
        with suppress(OperationalError), self._cursor():
            return True
        return False

    def create_database(self, name: str, template: str | None = None) -> None:
        with self._cursor() as cursor:
            cursor.execute(f"create database {name} character set utf8mb4")
            if template is not None:
                _copy_tables(cursor, template, name)

    def drop_database(self, name: str) -> None:
        with self._cursor() as cursor:
            cursor.execute(f"drop database if exists {name}")

    def made(self, name: str) -> Made | None:
        with self._cursor() as cursor:
            cursor.execute("select version() like '%mariadb%'")
            return made_on_mariadb(cursor, name) if cursor.fetchone() == (1,) else None

    def restored(self, name: str, made: Made) -> bool:
        with self._cursor() as cursor:
            return _soon(lambda: not _clients(cursor, name)) and restored_on_mariadb(cursor, name, made)

    def kill_connections(self) -> int:
        others = "where id <> connection_id() and user <> 'system user'"
        with self._cursor() as cursor:
            cursor.execute(f"select id from information_schema.processlist {others}")
            clients = [row[0] for row in cursor.fetchall()]
            for client in clients:
                with suppress(OperationalError):  # gone by itself meanwhile
                    cursor.execute(f"kill {client}")
            return len(clients)

    @contextmanager
    def _cursor(self) -> Iterator[Cursor]:
        with self._connection() as connection:
            yield connection.cursor()

    def _connect(self) -> pymysql.Connection:
        return pymysql.connect(
            host=self.server.host or "127.0.0.1",
            port=self.server.port or 3306,
            user=self.server.username or "root",
            password=self.server.password or "",
            autocommit=True,
            ssl_disabled=True,  # a TLS context costs more than all the rest of a connection
            connect_timeout=CONNECT_SECONDS,
            init_command="set session lock_wait_timeout = 10",
        )


def _clients(cursor: Cursor, name: str) -> int:
    """How many are connected to that database."""
    return int(cursor.execute("select id from information_schema.processlist where db = %s", [name]))


def _copy_tables(cursor: Cursor, template: str, target: str) -> None:
    """MariaDB has no template databases; a table copied by LIKE keeps everything but foreign keys."""
    cursor.execute(f"show tables from {template}")
    tables = [table for (table,) in cursor.fetchall()]
    found = ", ".join(f"exists(select 1 from {template}.{table})" for table in tables)
    cursor.execute(f"select {found or 1}")
    for table, has_rows in zip(tables, cursor.fetchone() or (), strict=False):
        cursor.execute(f"create table {target}.{table} like {template}.{table}")
        if has_rows:
            cursor.execute(f"insert into {target}.{table} select * from {template}.{table}")
