"""Parses database URLs, and chooses the dialect and driver.

There may be several hosts, `postgresql://a:5432,b:5432/shop` or `mysql://a,b:3307/shop`: a primary and those that may
become one. Whichever can be written to is used; after a failover that is another.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from penstock.errors import ConfigurationError
from penstock.settings import Settings
from penstock.values.lazy_import import Lazy
from penstock.values.parse import URL_FORMS
from penstock.values.secrets import without_secrets

if TYPE_CHECKING:
    import sqlalchemy

    from penstock.database import mysql, sqlite
    from penstock.database.dialect import Dialect
    from penstock.database.postgres import dialect, distributed
else:
    sqlalchemy = Lazy("sqlalchemy")
    mysql, sqlite = Lazy("penstock.database.mysql"), Lazy("penstock.database.sqlite")
    dialect = Lazy("penstock.database.postgres.dialect")
    distributed = Lazy("penstock.database.postgres.distributed")

DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql", "sqlite": "sqlite+pysqlite"}
"""By the kind of database, as SQLAlchemy names them."""
FORMS = "sqlite:///file.db, postgresql://host/database or mysql://user@host/database"
URL = re.compile(
    r"(?P<driver>[\w+]+)://"
    r"(?:(?P<username>[^:/]*)(?P<secret>:(?P<password>[^@]*))?@)?"
    r"(?P<hosts>[^/?]*)"
    r"(?:/(?P<database>[^?]*))?"
    r"(?:\?(?P<query>.*))?"
)
HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.%]+)\]|(?P<name>[^:\[\],]+))?(?::(?P<port>[^:\[\],]*))?")
POSTGRES_PORT, MYSQL_PORT, LAST_PORT = 5432, 3306, 65535
Place = tuple[str, int | None]


@dataclass(frozen=True, slots=True, repr=False)
class Url:
    """The parts of a database URL. They are never shown: in a malformed URL the password may be in any part."""

    driver: str
    username: str | None
    password: str | None
    host: str | None
    port: int | None
    database: str | None
    query: Mapping[str, str | tuple[str, ...]]
    hosts: tuple[tuple[str, int], ...] = ()
    """Several, where they are not in the query (MySQL); the first of them is also the host."""

    def __repr__(self) -> str:
        return f"<a URL for {self.driver}>"

    @property
    def backend(self) -> str:
        return self.driver.partition("+")[0]

    @property
    def parts(self) -> dict[str, str | int]:
        """Host, port, user and so on, as far as the URL has them, by the names that drivers use."""
        said = {
            "host": self.host,
            "port": self.port,
            "user": self.username,
            "password": self.password,
            "database": self.database,
        }
        return {name: value for name, value in said.items() if value}

    def as_sqlalchemy(self) -> sqlalchemy.URL:
        place = (self.username, self.password, self.host, self.port, self.database, self.query)
        return sqlalchemy.URL.create(self.driver, *place)


def parse(url: str) -> Url:
    """The URL with the driver that Penstock uses for it."""
    try:
        found, several = _read(url)
    except ValueError as error:
        shown = without_secrets(url)
        raise ConfigurationError(f"{shown!r} is not a database URL: {error}. Use {FORMS}.") from error
    driver = DRIVERS.get(URL_FORMS.get(found.driver, ""))
    if driver is None:
        raise ConfigurationError(f"{found.driver!r} is not a database that Penstock knows. Use {FORMS}.")
    if several and driver.startswith("sqlite"):
        raise ConfigurationError("A SQLite file is on no host: name its path (sqlite:///shop.db).")
    if driver.startswith("sqlite") and found.host:
        raise ConfigurationError(
            f"{without_secrets(url)!r} names a host; a SQLite file needs three slashes: sqlite:///{found.host}"
        )
    query = _for_our_driver(found)
    return _anchored(replace(_with_hosts(replace(found, query=query), several, driver), driver=driver))


ASYNCPG_ALONE = frozenset(
    {
        "command_timeout",
        "prepared_statement_cache_size",
        "prepared_statement_name_func",
        "statement_cache_size",
    }
)
"""Parameters of a URL for asyncpg that mean nothing to other drivers."""
ASYNCPG_SSL = {"true": "require", "1": "require", "false": "disable", "0": "disable"}


def _for_our_driver(url: Url) -> Mapping[str, str | tuple[str, ...]]:
    """The parameters of an application's own URL, as our driver spells them."""
    if not url.driver.endswith("+asyncpg"):
        return url.query
    query = {name: value for name, value in url.query.items() if name not in ASYNCPG_ALONE}
    if (ssl := query.pop("ssl", None)) is not None:
        query["sslmode"] = ASYNCPG_SSL.get(str(ssl).lower(), ssl)
    if (seconds := query.pop("timeout", None)) is not None:
        query["connect_timeout"] = seconds
    return query


def _anchored(url: Url) -> Url:
    """Make the path of a SQLite file absolute, so that a later `chdir` does not matter."""
    path = sqlite_path(url) if url.backend == "sqlite" else None
    return url if path is None or path.startswith("file:") else replace(url, database=os.path.abspath(path))


def _read(url: str) -> tuple[Url, list[Place]]:
    """The parts of it, and its hosts if there are several."""
    match = URL.fullmatch(url)
    if match is None:
        raise ValueError("it has another form")
    query = {
        name: values[0] if len(values) == 1 else tuple(values)
        for name, values in parse_qs(match["query"] or "").items()
    }
    username, password = match["username"], match["password"]
    named = Url(
        match["driver"],
        unquote(username) if username else None,
        unquote(password) if match["secret"] else None,
        None,
        None,
        match["database"] and unquote(match["database"]),
        query,
    )
    if "@" in match["hosts"][1:]:  # a socket without a file may begin with it
        raise ValueError("in a user or a password, @ is written as %40")
    hosts = [HOST.fullmatch(host) for host in match["hosts"].split(",")]
    if len(hosts) > 1:
        return named, [_place(host) for host in hosts]
    (host,) = hosts
    if host is None:
        raise ValueError("its host is wrong")
    port = _port(host)
    # The folder of a socket may be there as libpq has it: %2Frun%2Fpostgresql.
    return replace(named, host=host["address"] or (host["name"] and unquote(host["name"])), port=port), []


def _place(host: re.Match[str] | None) -> Place:
    name = host and (host["address"] or host["name"])
    if host is None or not name:
        raise ValueError("a host is missing or wrong")
    return name, _port(host)


def _port(host: re.Match[str]) -> int | None:
    text = host["port"]
    if not text:
        return None
    if not text.isdecimal() or not 0 < int(text[:9]) <= LAST_PORT:
        raise ValueError(f"its port is not a number from 1 to {LAST_PORT}")
    return int(text)


def _with_hosts(url: Url, hosts: list[Place], driver: str) -> Url:
    """Several hosts: for PostgreSQL in the query, as SQLAlchemy wants it; PyMySQL takes one, so we try them in turn.

    We write, so only a host that takes writes will do.
    """
    if not hosts:
        return url
    if driver.startswith("mysql"):
        places = tuple((name, port or MYSQL_PORT) for name, port in hosts)
        return replace(url, host=places[0][0], port=places[0][1], hosts=places)
    names = ",".join(name for name, _ in hosts)
    ports = ",".join(str(port or POSTGRES_PORT) for _, port in hosts)
    query = {"target_session_attrs": "read-write"} | dict(url.query) | {"host": names, "port": ports}
    return replace(url, query=query)


def dialect_for(url: Url, settings: Settings) -> Dialect:
    """The dialect of this database; this imports its driver."""
    try:
        return _dialect(url, settings)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"The driver for {url.driver} is missing: {error}") from error


def _dialect(url: Url, settings: Settings) -> Dialect:
    match url.backend:
        case "postgresql":
            if settings.profile == "distributed":
                return distributed.Distributed(settings)
            return dialect.Postgres(settings)
        case "mysql":
            if not url.database and not url.query.keys() & {"database", "db", "read_default_file"}:
                raise ConfigurationError(
                    f"{settings.shown_url} names no database. Use mysql://user@host/database"
                )
            return mysql.MySql(settings.statement_timeout, settings.lock_timeout, url.hosts)
        case _:
            return sqlite.Sqlite(sqlite_path(url), settings.lock_timeout)


def for_libpq(url: Url) -> dict[str, Any]:
    """The arguments of `psycopg.connect` for a connection without SQLAlchemy."""
    host = url.query.get("host", "")
    if not isinstance(host, str) or ":" in host:  # SQLAlchemy's own ways to name several hosts
        known = url.as_sqlalchemy()
        found = known.get_dialect()().create_connect_args(known)[1]
        return {name: value for name, value in found.items() if name != "context"}
    parts = {"dbname" if name == "database" else name: value for name, value in url.parts.items()}
    return parts | dict(url.query)


def sqlite_path(url: Url) -> str | None:
    """The file, or None for a database in memory."""
    name = url.database
    return None if name in (None, "", ":memory:") or url.query.get("mode") == "memory" else name
