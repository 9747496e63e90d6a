"""Reads and checks plain values that callers give: numbers, durations, instants, names.

The one home of readers, for arguments, options and settings. A reader raises ValueError with what it expects, as "give
..."; `checked` says whose, and which argument: "shop.pack: delay=-1: give seconds ...".
"""

from __future__ import annotations

import difflib
import math
import re
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from penstock.errors import ConfigurationError, PenstockError

R = TypeVar("R")
V = TypeVar("V")
LONGEST = 100 * 366 * 86_400.0
"""The longest duration, in seconds. A longer one would not fit the clock of every database."""
MOST = 2**30
LARGEST = sys.float_info.max
MICROS = 1_000_000
LONGEST_WORD = 1000
"""The longest text that a search accepts; no name, key or label is as long."""
MOST_LABELS = 50
"""The most labels that a job or a run may have."""


def checked(
    name: str,
    value: V,
    read: Callable[[V], R],
    where: str = "",
    error: type[PenstockError] = ConfigurationError,
) -> R:
    """Read an argument; an error names the argument, and where it was given."""
    try:
        return read(value)
    except (TypeError, ValueError) as wrong:
        raise error(f"{where}{': ' if where else ''}{name}={value!r}: {wrong}") from None


def no_option(name: str, known: Iterable[str]) -> str:
    """The sentence about an option that does not exist."""
    known = sorted(known)
    return f"there is no option {name!r}{nearest(name, known) or '; there are ' + ', '.join(known)}"


def text(value: object, longest: int, without: str = "\0") -> str:
    """A name or a key, as it is stored and compared."""
    if not isinstance(value, str) or not value:
        raise ValueError("give a text")
    if len(value) > longest or any(letter in value for letter in without):
        no = " and no tab" if "\t" in without else ""
        raise ValueError(f"at most {longest} characters, no NUL{no}")
    if not is_storable(value):
        raise ValueError("it holds half a character (a surrogate), which cannot be stored")
    return value


def words(**given: object) -> None:
    """Check the filters of a search, by name: each a text, or None for no filter."""
    for name, value in given.items():
        checked(name, value, lambda value: None if value is None else text(value, LONGEST_WORD))


def labels(given: object) -> tuple[str, ...]:
    """Labels of a job or a run as a caller gives them: a text, or several."""
    if given is None:
        return ()
    several = texts(given, NAME_LENGTH, "tenant:7")
    if len(several) > MOST_LABELS:
        raise ValueError(f"give at most {MOST_LABELS} labels; these are {len(several)}")
    return tuple(sorted(set(several)))


def texts(given: object, longest: int, example: str, without: str = "\0") -> tuple[str, ...]:
    """A text, or several."""
    several = [given] if isinstance(given, str) else given
    if not isinstance(several, list | tuple | set | frozenset):
        raise ValueError(f"give texts, such as [{example!r}]")
    return tuple([text(each, longest, without) for each in several])


def is_storable(value: str) -> bool:
    """True if the text has no lone surrogates."""
    return value.isascii() or value.encode("utf-8", "replace").decode() == value


def whole(value: object, least: int, most: float = MOST) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"give a whole number {_bounds(least, most)}")
    return value


def number(value: object, least: float = -LARGEST, most: float = LARGEST) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"give a number {_bounds(least, most)}".rstrip())
    return value


def seconds(value: object, least: float = 0.0, most: float = LONGEST) -> float:
    """A duration that ends."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"give seconds (or a timedelta) {_bounds(least, most)}")
    return float(value)


def duration(value: object, least: float = 0.0, most: float = LONGEST) -> float:
    """Seconds, which may also be written as a text: "500ms", "5m", "14d"."""
    return seconds(parse_seconds(value) if isinstance(value, str) else value, least, most)


def one_of(value: object, allowed: Iterable[str]) -> str:
    known = [str(each) for each in allowed]
    if not isinstance(value, str) or str(value) not in known:
        raise ValueError(f"give one of {', '.join(known)}{nearest(str(value), known)}")
    return str(value)


def waiting_time(value: object) -> float | None:
    """Read how long a caller waits. None waits without limit; a negative number does not wait."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if value is None or value == math.inf:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf <= value:
        raise ValueError("give seconds (or a timedelta), or None to wait for as long as it takes")
    return float(min(LONGEST, max(0.0, value)))


def instant(value: object) -> int:
    """Microseconds of the database's clock."""
    if not isinstance(value, datetime):
        raise ValueError("give a datetime with a time zone")
    if value.tzinfo is None:
        raise ValueError("this datetime has no time zone; give one, such as datetime.now(timezone.utc)")
    return int(value.timestamp() * MICROS)


# Quantities as people write them: "30s", "14d", "1 MiB", "mail:10,default".

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_BYTES = {"": 1, "b": 1, "k": 1024, "kb": 1000, "kib": 1024, "m": 1024**2, "mb": 1000**2, "mib": 1024**2}
_BYTES |= {"g": 1024**3, "gb": 1000**3, "gib": 1024**3}
_TOO_MUCH = 1e300
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([a-z]*)\s*")
_QUEUE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,99}")


@dataclass(frozen=True, slots=True)
class QueueLimit:
    """A queue to work on, and how many of its jobs one process runs at a time (None: up to `concurrency`)."""

    name: str
    limit: int | None = None

    def __post_init__(self) -> None:
        if not _QUEUE.fullmatch(self.name):
            raise ValueError(
                f"{self.name!r} is not a queue name: letters, digits, '_', '-' and '.', at most 100"
            )
        if self.limit is not None and self.limit < 1:
            raise ValueError(f"the limit of queue {self.name!r} must be at least 1, not {self.limit}")

    def __str__(self) -> str:
        return self.name if self.limit is None else f"{self.name}:{self.limit}"


def is_queue(name: str) -> bool:
    """Whether a queue can have this name."""
    return _QUEUE.fullmatch(name) is not None


def parse_seconds(text: str | float | timedelta) -> float:
    """Seconds from a number, a `timedelta`, or text such as "90", "500ms", "30s", "5m", "2h", "14d"."""
    if isinstance(text, timedelta):
        return text.total_seconds()
    if isinstance(text, str):
        number, unit = _quantity(
            text, _SECONDS.keys() | {""}, 'a duration such as 30, "500ms", "5m" or "14d"'
        )
        return number * _SECONDS.get(unit, 1.0)
    if isinstance(text, bool) or not abs(text) < _TOO_MUCH:
        raise ValueError("give a number of seconds")
    return float(text)


def parse_bytes(text: str | int) -> int:
    """Bytes from a number or text such as "65536", "512 KiB", "1MB"."""
    if isinstance(text, str):
        number, unit = _quantity(text, _BYTES.keys(), 'a size such as 65536 or "512 KiB"')
        return int(number * _BYTES[unit])
    if isinstance(text, bool):
        raise ValueError("give a number of bytes")
    return text


def parse_queues(text: str) -> tuple[QueueLimit, ...]:
    """Queues from text such as "mail:10,default": names, each with an optional limit."""
    queues: list[QueueLimit] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, colon, limit = (piece.strip() for piece in part.partition(":"))
        if colon and not limit.isdigit():
            raise ValueError(f"{part!r}: write NAME or NAME:LIMIT, such as mail:10")
        queues.append(QueueLimit(name, int(limit) if colon else None))
    if not queues:
        raise ValueError("name at least one queue, such as mail:10,default")
    if len({queue.name for queue in queues}) < len(queues):
        raise ValueError(f"{text!r} names a queue twice")
    return tuple(queues)


def read_queues(given: object) -> tuple[QueueLimit, ...] | None:
    """Queues from text, from texts one by one, or limits by name; None stays None and means all."""
    if given is None:
        return None
    if isinstance(given, str):
        return parse_queues(given)
    if isinstance(given, Mapping):
        given = [name if limit is None else f"{name}:{limit}" for name, limit in given.items()]
    several = tuple(given) if isinstance(given, Iterable) else (given,)
    if not all(isinstance(queue, str | QueueLimit) for queue in several):
        raise ValueError('give a text or a list of texts, such as ["mail:10", "default"]')
    return parse_queues(",".join(map(str, several)))


def _quantity(text: str, units: Container[str], expected: str) -> tuple[float, str]:
    found = _QUANTITY.fullmatch(text.lower())
    if found is None or found[2] not in units:
        raise ValueError(f"give {expected}")
    return float(found[1]), found[2]


# Readers: each takes what a user wrote for a setting, text or value, and returns it checked.
#
# A reader raises ValueError with what it expects ("give a number from 1 to 10"); the caller says for which
# setting.

Reader = Callable[[object], object]

DRIVER_SPELLINGS = {
    "postgresql": ("psycopg", "psycopg_async", "psycopg2", "asyncpg", "pg8000"),
    "mysql": ("pymysql", "aiomysql", "asyncmy", "mysqldb", "mysqlconnector"),
    "mariadb": ("pymysql", "aiomysql", "asyncmy", "mysqldb", "mysqlconnector"),
    "sqlite": ("pysqlite", "aiosqlite"),
}
"""The drivers that an application may name in its own URL, as SQLAlchemy spells them. Penstock uses its own driver."""
URL_FORMS = {"postgresql": "postgresql", "postgres": "postgresql", "mysql": "mysql", "mariadb": "mysql"} | {
    "sqlite": "sqlite",
    **{
        f"{backend}+{driver}": {"mariadb": "mysql"}.get(backend, backend)
        for backend, drivers in DRIVER_SPELLINGS.items()
        for driver in drivers
    },
}
"""The accepted beginnings of a database URL, and the kind of database each names."""

SHORTEST_PASSWORD = 8
SHORTEST_SECRET = 16
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})
_NONE = frozenset({"", "none", "null"})
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,30}")


def read_text(value: object) -> str:
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


def read_whole(least: int, most: float = math.inf) -> Reader:
    def read(value: object) -> int:
        if isinstance(value, str) and re.fullmatch(r"\s*-?\d[\d_]*\s*", value):
            value = int(value)
        return whole(value, least, most)

    return read


def read_seconds(least: float, most: float = LONGEST) -> Reader:
    return lambda value: duration(value, least, most)


def size(least: int) -> Reader:
    def read(value: object) -> int:
        if isinstance(value, (str, int)):
            number = parse_bytes(value)
            if number >= least:
                return number
        raise ValueError(f"give a number of bytes, at least {least}")

    return read


def choice(*allowed: str) -> Reader:
    return lambda value: one_of(value.lower() if isinstance(value, str) else value, allowed)


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


def password(value: object) -> str:
    """A password that is not trivial to guess. What was given stays out of the message."""
    if isinstance(value, str) and len(value) >= SHORTEST_PASSWORD:
        return value
    raise ValueError(f"give a text of at least {SHORTEST_PASSWORD} characters")


def database_url(value: object) -> str:
    """A URL of a database we know; also a SQLAlchemy URL object."""
    url = value.render_as_string(hide_password=False) if hasattr(value, "render_as_string") else value
    # A line end comes with what is read from a file, and would be a part of the database's name.
    url = url.strip() if isinstance(url, str) else url
    scheme, colon, _ = url.partition(":") if isinstance(url, str) else ("", "", "")
    if colon and scheme.lower() in URL_FORMS:
        return str(url)
    # The URL itself stays out of the message: it may hold a password.
    forms = ", ".join(f"{form}://" for form in URL_FORMS if "+" not in form)
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
        return f"of at least {least:.12g}, and no more than a hundred years"
    if most not in (math.inf, LARGEST, MOST):
        return f"from {least:.12g} to {most:.12g}"
    return "" if least in (-LARGEST, -MOST) else f"of at least {least:.12g}"


# How long names may be: of a task, a queue, a label; of a key; of a place in nested expands.

NAME_LENGTH = 200
KEY_LENGTH = 255
PATH_LENGTH = 255
