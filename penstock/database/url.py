"""Database URLs: which are understood, and which dialect and driver answer them."""

from __future__ import annotations

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from penstock.database.dialect import Dialect
from penstock.database.mysql import MySql
from penstock.database.postgres import Postgres
from penstock.database.sqlite import Sqlite
from penstock.errors import ConfigurationError
from penstock.settings import Settings

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


def parse(url: str) -> URL:
    """The URL with the driver that Penstock uses for it."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise ConfigurationError(f"{url!r} is not a database URL. Use {FORMS}.") from error
    driver = DRIVERS.get(parsed.drivername)
    if driver is None:
        raise ConfigurationError(f"{parsed.drivername!r} is not a database that Penstock knows. Use {FORMS}.")
    if driver.startswith("sqlite") and parsed.host:
        raise ConfigurationError(
            f"{url!r} names a host; a SQLite file needs three slashes: sqlite:///{parsed.host}"
        )
    return parsed.set(drivername=driver)


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
