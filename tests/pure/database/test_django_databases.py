"""django/databases: the URL that an entry of Django's DATABASES means."""

from pathlib import Path
from typing import Any

import pytest

from penstock.database.url import for_libpq, parse, sqlite_path
from penstock.django.databases import database_url
from penstock.errors import ConfigurationError

PLACE = {"HOST": "db", "PORT": 6543, "USER": "ann", "PASSWORD": "p@ss/w:rd%", "NAME": "the shop"}
WRITABLE = {"target_session_attrs": "read-write"}


@pytest.mark.parametrize(
    ("entry", "given"),
    [
        (
            PLACE,
            {"host": "db", "port": 6543, "user": "ann", "password": "p@ss/w:rd%", "dbname": "the shop"},
        ),
        ({"NAME": "shop"}, {"dbname": "shop"}),
        ({"NAME": "shop", "HOST": "/run/pg"}, {"dbname": "shop", "host": "/run/pg"}),
        ({"NAME": "shop", "HOST": "::1", "PORT": "1"}, {"dbname": "shop", "host": "::1", "port": 1}),
        (
            {"NAME": "shop", "HOST": "a,b", "PORT": "1,2"},
            {"dbname": "shop", "host": "a,b", "port": "1,2"} | WRITABLE,
        ),
        (
            {"NAME": "shop", "HOST": "a,b", "PORT": "5"},
            {"dbname": "shop", "host": "a,b", "port": "5,5"} | WRITABLE,
        ),
        (
            {
                "NAME": "shop",
                "OPTIONS": {"sslmode": "verify-full", "sslrootcert": "/ca.pem", "connect_timeout": 3}
                | {"pool": True, "isolation_level": 2, "server_side_binding": True, "assume_role": "app"},
            },
            {"dbname": "shop", "sslmode": "verify-full", "sslrootcert": "/ca.pem", "connect_timeout": "3"},
        ),
        ({"OPTIONS": {"service": "shop"}}, {"service": "shop"}),
    ],
)
def test_postgresql(entry: dict[str, Any], given: dict[str, object]) -> None:
    assert for_libpq(parse(database_url("default", "postgresql", entry))) == given


def test_mysql() -> None:
    url = parse(database_url("default", "mysql", PLACE))
    named = {"host": "db", "port": 6543, "user": "ann", "password": "p@ss/w:rd%", "database": "the shop"}
    assert url.parts == named
    options = {"charset": "utf8mb4", "ssl": {"ca": "/ca.pem"}, "init_command": "SET x", "sql_mode": "ANSI"}
    local = parse(
        database_url("default", "mysql", {"NAME": "shop", "HOST": "/run/m.sock", "OPTIONS": options})
    )
    assert local.query == {"charset": "utf8mb4", "ssl_ca": "/ca.pem", "unix_socket": "/run/m.sock"}


def test_sqlite(tmp_path: Path) -> None:
    file = tmp_path / "a b#?.db"
    assert sqlite_path(parse(database_url("default", "sqlite", {"NAME": file}))) == str(file)
    shared = parse(
        database_url("default", "sqlite", {"NAME": "file:memorydb_default?mode=memory&cache=shared"})
    )
    assert (shared.database, shared.query["uri"]) == ("file:memorydb_default", "true")
    assert sqlite_path(shared) is None


def test_other_databases_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match=r"DATABASES\['legacy'\] is a oracle database"):
        database_url("legacy", "oracle", {})
