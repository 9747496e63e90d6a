"""Create, drop and cut off databases on a server that is already there, known by its URL."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pymysql
from pymysql.cursors import Cursor
from pymysql.err import OperationalError
from sqlalchemy.engine import URL, make_url

CONNECT_SECONDS = 5


class Admin(ABC):
    """The few things tests ask of a server; `server` is its URL, whatever database that names."""

    def __init__(self, server: str) -> None:
        self.server: URL = make_url(server)

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


class PostgresAdmin(Admin):
    def answers(self) -> bool:
        with suppress(psycopg.OperationalError), self._connection():
            return True
        return False

    def create_database(self, name: str, template: str | None = None) -> None:
        with self._connection() as connection:
            connection.execute(f"create database {name} template {template or 'template0'}".encode())

    def drop_database(self, name: str) -> None:
        with self._connection() as connection:
            connection.execute(f"drop database if exists {name} with (force)".encode())

    def kill_connections(self) -> int:
        clients = "from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid()"
        with self._connection() as connection:
            return len(connection.execute(f"select pg_terminate_backend(pid) {clients}".encode()).fetchall())

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection]:
        plain = self.server.set(drivername="postgresql", database=self.server.database or "postgres")
        with psycopg.connect(
            plain.render_as_string(hide_password=False), autocommit=True, connect_timeout=CONNECT_SECONDS
        ) as connection:
            yield connection


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
        connection = pymysql.connect(
            host=self.server.host or "127.0.0.1",
            port=self.server.port or 3306,
            user=self.server.username or "root",
            password=self.server.password or "",
            autocommit=True,
            ssl_disabled=True,  # a TLS context costs more than all the rest of a connection
            connect_timeout=CONNECT_SECONDS,
            init_command="set session lock_wait_timeout = 10",
        )
        try:
            yield connection.cursor()
        finally:
            connection.close()


def _copy_tables(cursor: Cursor, template: str, target: str) -> None:
    """MariaDB has no template databases; a table copied by LIKE keeps everything but foreign keys."""
    cursor.execute(f"show tables from {template}")
    for (table,) in cursor.fetchall():
        cursor.execute(f"create table {target}.{table} like {template}.{table}")
        cursor.execute(f"insert into {target}.{table} select * from {template}.{table}")
