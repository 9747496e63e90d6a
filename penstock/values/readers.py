"""Readers: each takes what somebody wrote for a setting, text or value, and returns it checked.

A reader raises ValueError with what it expects ("give a number from 1 to 10"); the caller says for which
setting.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable
from datetime import timedelta

from penstock.values.checks import LONGEST
from penstock.values.units import parse_bytes, parse_seconds

Reader = Callable[[object], object]

URL_FORMS = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "postgresql+psycopg": "postgresql",
    "mysql": "mysql",
    "mysql+pymysql": "mysql",
    "mariadb": "mysql",
    "mariadb+pymysql": "mysql",
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
}
"""The accepted beginnings of a database URL, and the kind of database each names."""

SHORTEST_SECRET = 16
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})
_NONE = frozenset({"", "none", "null"})
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")


def text(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError("give a text")


def flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _YES | _NO:
        return value.strip().lower() in _YES
    raise ValueError("give true or false")


def identifier(value: object) -> str:
    """A name that goes into SQL as it is."""
    if isinstance(value, str) and _IDENTIFIER.fullmatch(value):
        return value
    raise ValueError("give letters, digits and '_' only, not beginning with a digit, at most 31")


def whole(least: int, most: float = math.inf) -> Reader:
    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*-?\d[\d_]*\s*", value):
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise ValueError(f"give a whole number {_bounds(least, most)}")

    return read


def seconds(least: float, most: float = LONGEST) -> Reader:
    def read(value: object) -> float:
        if not isinstance(value, (str, int, float, timedelta)):
            raise ValueError("give a number of seconds")
        number = parse_seconds(value)
        if least <= number <= most:
            return number
        raise ValueError(f"give a number of seconds {_bounds(least, most)}")

    return read


def size(least: int) -> Reader:
    def read(value: object) -> int:
        if isinstance(value, (str, int)):
            number = parse_bytes(value)
            if number >= least:
                return number
        raise ValueError(f"give a number of bytes, at least {least}")

    return read


def choice(*allowed: str) -> Reader:
    def read(value: object) -> str:
        if isinstance(value, str) and value.lower() in allowed:
            return value.lower()
        raise ValueError(f"give one of {', '.join(allowed)}{nearest(str(value), allowed)}")

    return read


def optional(reader: Reader) -> Reader:
    def read(value: object) -> object:
        if value is None or (isinstance(value, str) and value.strip().lower() in _NONE):
            return None
        return reader(value)

    return read


def secrets(value: object) -> tuple[str, ...]:
    """One secret or several; as text, with commas between. What was given stays out of the message."""
    given = value.split(",") if isinstance(value, str) else value
    if isinstance(given, list | tuple) and all(isinstance(one, str) for one in given):
        found = tuple([one.strip() for one in given])
        if found and min(map(len, found)) >= SHORTEST_SECRET:
            return found
    raise ValueError(
        f"give texts of at least {SHORTEST_SECRET} characters each (in one text, a comma parts two of them), such as "
        'python -c "import secrets; print(secrets.token_urlsafe(32))" makes'
    )


def database_url(value: object) -> str:
    """A URL of a database we know; also a SQLAlchemy URL object."""
    url = value.render_as_string(hide_password=False) if hasattr(value, "render_as_string") else value
    # A line end comes with what is read from a file, and would be a part of the database's name.
    url = url.strip() if isinstance(url, str) else url
    scheme, colon, _ = url.partition(":") if isinstance(url, str) else ("", "", "")
    if colon and scheme.lower() in URL_FORMS:
        return str(url)
    # The URL itself stays out of the message: it may hold a password.
    forms = ", ".join(f"{form}://" for form in URL_FORMS)
    if not colon:
        raise ValueError(
            f"give a URL: for a SQLite file sqlite:///FILE, else one that begins with one of {forms}"
        )
    raise ValueError(f"give a URL that begins with one of {forms}{nearest(scheme, URL_FORMS)}")


def nearest(wrong: str, valid: Iterable[str], spell: Callable[[str], str] = str) -> str:
    """ ". Did you mean 'x'?" when something valid is close to what was written, else nothing."""
    by_lower = {name.lower(): name for name in valid}
    containing = [name for name in by_lower if wrong.lower() in name.split("_")]
    close = containing or difflib.get_close_matches(wrong.lower(), by_lower, n=1, cutoff=0.5)
    return f". Did you mean {spell(by_lower[close[0]])!r}?" if close else ""


def _bounds(least: float, most: float) -> str:
    if most == LONGEST:
        return f"of at least {least:g}, and no more than a hundred years"
    return f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
