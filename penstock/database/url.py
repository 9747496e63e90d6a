"""Database URLs: which are understood, and which dialect and driver answer them.

PostgreSQL may be several hosts, `postgresql://a:5432,b:5432/shop`: a primary and those that may become one. Whichever
can be written to is used; after a failover that is another.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from penstock.database.dialect import Dialect
from penstock.database.mysql import MySql
from penstock.database.postgres import Postgres
from penstock.database.sqlite import Sqlite
from penstock.errors import ConfigurationError
from penstock.settings import Settings, without_password

DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "postgres": "postgresql+psycopg",
    "postgresql+psycopg": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "mysql+pymysql": "mysql+pymysql",
    "mariadb+pymysql": "mysql+pymysql",
    "sqlite": "sqlite+pysqlite",
    "sqlite+pysqlite": "sqlite+pysqlite",
}
FORMS = "sqlite:///file.db, postgresql://host/database or mysql://user@host/database"
SEVERAL_HOSTS = re.compile(r"(?P<before>[^:/]+://(?:[^/]*@)?)(?P<hosts>[^/?@]*,[^/?@]*)(?P<after>[/?].*)?")
HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\],]+)(?::(?P<port>\d+))?")
DEFAULT_PORT = "5432"


def parse(url: str) -> URL:
    """The URL with the driver that Penstock uses for it."""
    several = SEVERAL_HOSTS.fullmatch(url)
    try:
        parsed = make_url(url) if several is None else _with_hosts(several)
    except (ArgumentError, ValueError) as error:
        raise ConfigurationError(f"{without_password(url)!r} is not a database URL. Use {FORMS}.") from error
    driver = DRIVERS.get(parsed.drivername)
    if driver is None:
        raise ConfigurationError(f"{parsed.drivername!r} is not a database that Penstock knows. Use {FORMS}.")
    if driver.startswith("sqlite") and parsed.host:
        raise ConfigurationError(
            f"{url!r} names a host; a SQLite file needs three slashes: sqlite:///{parsed.host}"
        )
    if several is not None and not driver.startswith("postgresql"):
        raise ConfigurationError("Several hosts in one URL are for PostgreSQL only: name one of them.")
    return parsed.set(drivername=driver)


def connect_arguments(url: URL) -> dict[str, Any]:
    """What the driver is to be given for a connection of its own, outside the pool."""
    arguments = url.get_dialect()().create_connect_args(url)[1]
    return {name: value for name, value in arguments.items() if name != "context"}


def _with_hosts(several: re.Match[str]) -> URL:
    """SQLAlchemy wants each host in the query. We write, so only a host that takes writes will do."""
    hosts = [HOST.fullmatch(host) for host in several["hosts"].split(",")]
    if not all(hosts):
        raise ValueError("a host is missing or wrong")
    names = ",".join(host["name"].strip("[]") for host in hosts if host)
    ports = ",".join(host["port"] or DEFAULT_PORT for host in hosts if host)
    bare = make_url(several["before"] + (several["after"] or ""))
    wanted = {"target_session_attrs": "read-write"} | dict(bare.query)
    return bare.set(query=wanted | {"host": names, "port": ports})


def dialect_for(url: URL, settings: Settings) -> Dialect:
    match url.get_backend_name():
        case "postgresql":
            return Postgres(settings)
        case "mysql":
            return MySql(settings.statement_timeout, settings.lock_timeout)
        case _:
            return Sqlite(sqlite_path(url), settings.lock_timeout)


def sqlite_path(url: URL) -> str | None:
    """The file, or None for a database in memory."""
    name = url.database
    return None if name in (None, "", ":memory:") or url.query.get("mode") == "memory" else name
