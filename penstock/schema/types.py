"""Column types that mean the same on every database."""

from __future__ import annotations

from typing import Any

from sqlalchemy import CHAR, BigInteger, Integer, String, Table, Text
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeEngine

from penstock.values.parse import NAME_LENGTH, PATH_LENGTH


class Exact(mysql.VARCHAR):
    """Compared byte by byte. The collation that keeps trailing spaces apart has a name on each server."""


@compiles(Exact, "mysql", "mariadb")
def _exact(kind: Exact, compiler: Any, **_: object) -> str:
    collation = "utf8mb4_nopad_bin" if compiler.dialect.is_mariadb else "utf8mb4_0900_bin"
    return f"VARCHAR({kind.length}) CHARACTER SET utf8mb4 COLLATE {collation}"


def identifier() -> TypeEngine[Any]:
    """A UUID: native where there is such a type, else its 36 characters."""
    return (
        CHAR(36)
        .with_variant(postgresql.UUID(as_uuid=False), "postgresql")
        .with_variant(mysql.CHAR(36, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
    )


def name(length: int = NAME_LENGTH) -> TypeEngine[Any]:
    """A word that is compared exactly, letter case and spaces at its end included."""
    exact = Exact(length)
    return String(length).with_variant(Text(), "postgresql").with_variant(exact, "mysql", "mariadb")


def path() -> TypeEngine[Any]:
    """A path in nested expands. Its order as bytes is the order of the elements, whatever the collation."""
    exact = Exact(PATH_LENGTH)
    return (
        String(PATH_LENGTH)
        .with_variant(Text(collation="C"), "postgresql")
        .with_variant(exact, "mysql", "mariadb")
    )


def word() -> TypeEngine[Any]:
    """A short word of ours, such as a status."""
    exact = mysql.VARCHAR(40, charset="ascii", collation="ascii_bin")
    return String(40).with_variant(Text(), "postgresql").with_variant(exact, "mysql", "mariadb")


def text() -> TypeEngine[Any]:
    """A document of any length; JSON is kept as text, so that a NUL inside a string is no trouble."""
    return Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb")


def micros() -> TypeEngine[Any]:
    """An instant: microseconds since 1970 by the database's clock."""
    return BigInteger()


def sequence() -> TypeEngine[Any]:
    """A number the database assigns. SQLite counts rows in an INTEGER only."""
    return BigInteger().with_variant(Integer(), "sqlite")


def stored(table: Table) -> str:
    """The storage parameters of a table on PostgreSQL as SQL; SQLAlchemy before 2.1 cannot write them."""
    name = f'"{table.schema}"."{table.name}"' if table.schema else f'"{table.name}"'
    options = ", ".join(f"{option} = {value}" for option, value in table.info["storage"].items())
    return f"ALTER TABLE {name} SET ({options})"
