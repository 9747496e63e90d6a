"""The test servers themselves: they come back after a crash, and they can be cut off."""

import psycopg
import pymysql
import pytest
from pymysql.err import OperationalError

from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres


@pytest.mark.process
def test_postgres_keeps_what_was_committed_before_a_crash(postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_server.create_database("shop")) as connection:
        connection.execute("create table orders (id int)")
        connection.execute("insert into orders values (1)")
    postgres_server.restart(immediate=True)
    with psycopg.connect(postgres_server.url("shop")) as connection:
        assert connection.execute("select id from orders").fetchall() == [(1,)]


@pytest.mark.process
def test_mariadb_keeps_what_was_committed_before_a_crash(mariadb_server: Mariadb) -> None:
    mariadb_server.create_database("shop")
    with _connect(mariadb_server) as connection, connection.cursor() as cursor:
        cursor.execute("create table shop.orders (id int)")
        cursor.execute("insert into shop.orders values (1)")
        connection.commit()
    mariadb_server.restart(immediate=True)
    with _connect(mariadb_server) as connection, connection.cursor() as cursor:
        cursor.execute("select id from shop.orders")
        assert cursor.fetchall() == ((1,),)


@pytest.mark.process
def test_postgres_clients_can_be_cut_off(postgres_server: Postgres) -> None:
    with psycopg.connect(postgres_server.url("postgres")) as connection:
        assert postgres_server.kill_connections() == 1
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")


@pytest.mark.process
def test_mariadb_clients_can_be_cut_off(mariadb_server: Mariadb) -> None:
    with _connect(mariadb_server) as connection, connection.cursor() as cursor:
        assert mariadb_server.kill_connections() == 1
        with pytest.raises(OperationalError):
            cursor.execute("select 1")


def _connect(server: Mariadb) -> "pymysql.connections.Connection[pymysql.cursors.Cursor]":
    return pymysql.connect(host="127.0.0.1", port=server.port, user="root", ssl_disabled=True)
