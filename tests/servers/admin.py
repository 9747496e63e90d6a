"""Create, drop and cut off databases on a server that is already there, known by its URL.

Every test has a database made and dropped, so what that takes counts a thousand times: an admin that lives as long as
the session keeps its connection.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pymysql
from pymysql.cursors import Cursor
from pymysql.err import OperationalError
from sqlalchemy.engine import URL, make_url

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
        with self._connection() as connection:
            _see_off(connection, name)
            connection.execute(f"drop database if exists {name} with (force)".encode())

    def kill_connections(self) -> int:
        clients = "from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        with self._connection() as connection:
            return len(connection.execute(f"select pg_terminate_backend(pid) {clients}".encode()).fetchall())

    def _connect(self) -> psycopg.Connection:
        plain = self.server.set(drivername="postgresql", database=self.server.database or "postgres")
        return psycopg.connect(
            plain.render_as_string(hide_password=False), autocommit=True, connect_timeout=CONNECT_SECONDS
        )


def _see_off(connection: psycopg.Connection, name: str) -> None:
    """Give those who are closing a moment: a drop that meets anybody sleeps for a tenth of a second."""
    others = "select count(*) from pg_stat_activity where datname = %s"
    with suppress(AssertionError):
        eventually(lambda: connection.execute(others, [name]).fetchone() == (0,), timeout=0.1, pause=0.002)


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
