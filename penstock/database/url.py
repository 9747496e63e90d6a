"""Database URLs: which are understood, and which dialect and driver answer them.

PostgreSQL may be several hosts, `postgresql://a:5432,b:5432/shop`: a primary and those that may become one. Whichever
can be written to is used; after a failover that is another.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

from penstock.errors import ConfigurationError
from penstock.lazy import Lazy
from penstock.settings import Settings, without_password
from penstock.values.readers import URL_FORMS

if TYPE_CHECKING:
    import sqlalchemy

    from penstock.database import mysql, postgres, sqlite
    from penstock.database.dialect import Dialect
else:
    sqlalchemy = Lazy("sqlalchemy")
    mysql, postgres, sqlite = (Lazy(f"penstock.database.{name}") for name in ("mysql", "postgres", "sqlite"))

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
HOST = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.%]+)\]|(?P<name>[^:\[\],]+))?(?::(?P<port>\d*))?")
DEFAULT_PORT = "5432"


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a database URL."""

    driver: str
    username: str | None
    password: str | None
    host: str | None
    port: int | None
    database: str | None
    query: Mapping[str, str | tuple[str, ...]]

    @property
    def backend(self) -> str:
        return self.driver.partition("+")[0]

    @property
    def parts(self) -> dict[str, str | int]:
        """Where and who, as far as it is said, by the names that drivers use."""
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
        raise ConfigurationError(f"{without_password(url)!r} is not a database URL. Use {FORMS}.") from error
    driver = DRIVERS.get(URL_FORMS.get(found.driver, ""))
    if driver is None:
        raise ConfigurationError(f"{found.driver!r} is not a database that Penstock knows. Use {FORMS}.")
    if driver.startswith("sqlite") and found.host:
        raise ConfigurationError(
            f"{without_password(url)!r} names a host; a SQLite file needs three slashes: sqlite:///{found.host}"
        )
    if several and not driver.startswith("postgresql"):
        raise ConfigurationError("Several hosts in one URL are for PostgreSQL only: name one of them.")
    return _anchored(replace(found, driver=driver))


def _anchored(url: Url) -> Url:
    """A file is sought where the app was made, also by connections that are opened after a `chdir`."""
    path = sqlite_path(url) if url.backend == "sqlite" else None
    return url if path is None or path.startswith("file:") else replace(url, database=os.path.abspath(path))


def _read(url: str) -> tuple[Url, bool]:
    """The parts of it, and whether it has several hosts."""
    match = URL.fullmatch(url)
    if match is None:
        raise ValueError("it has no such form")
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
    hosts = [HOST.fullmatch(host) for host in match["hosts"].split(",")]
    if len(hosts) > 1:
        return replace(named, query=_with_hosts(hosts, query)), True
    (host,) = hosts
    if host is None:
        raise ValueError("its host is wrong")
    port = int(host["port"]) if host["port"] else None
    # The folder of a socket may be there as libpq has it: %2Frun%2Fpostgresql.
    return replace(named, host=host["address"] or (host["name"] and unquote(host["name"])), port=port), False


def _with_hosts(
    hosts: list[re.Match[str] | None], query: dict[str, str | tuple[str, ...]]
) -> dict[str, str | tuple[str, ...]]:
    """All of them in the query, as SQLAlchemy wants it. We write, so only a host that takes writes will do."""
    known = [host for host in hosts if host is not None and (host["address"] or host["name"])]
    if len(known) < len(hosts):
        raise ValueError("a host is missing or wrong")
    names = ",".join(host["address"] or host["name"] for host in known)
    ports = ",".join(host["port"] or DEFAULT_PORT for host in known)
    return {"target_session_attrs": "read-write"} | query | {"host": names, "port": ports}


def dialect_for(url: Url, settings: Settings) -> Dialect:
    """What differs on this database; its driver is brought in with it."""
    try:
        return _dialect(url, settings)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"The driver for {url.driver} is missing: {error}") from error


def _dialect(url: Url, settings: Settings) -> Dialect:
    match url.backend:
        case "postgresql":
            return postgres.Postgres(settings)
        case "mysql":
            if not url.database and not url.query.keys() & {"database", "db", "read_default_file"}:
                raise ConfigurationError(
                    f"{settings.shown_url} names no database. Use mysql://user@host/database"
                )
            return mysql.MySql(settings.statement_timeout, settings.lock_timeout)
        case _:
            return sqlite.Sqlite(sqlite_path(url), settings.lock_timeout)


def for_libpq(url: Url) -> dict[str, Any]:
    """What psycopg is to be given for a connection that SQLAlchemy has no part in."""
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
