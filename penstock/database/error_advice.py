"""Classifies database errors (transient, outage, bad value) and attaches advice."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NoReturn

from penstock.errors import DatabaseUnavailable, PenstockError, SerializationError
from penstock.values.escape import in_one_line

OUTAGES = frozenset({"OperationalError", "InternalError", "InterfaceError", "ProgrammingError"})

VALUE_STATES = frozenset({"42804", "42846", "42883", "P0001"})
"""PostgreSQL: the value has a wrong type for its column or function, or a trigger of the user refuses it."""
VALUE_CODES = frozenset({1153, 1292, 1305, 1365, 1366, 1411, 1644, 1690, 3140, 3819, 4025})
"""MySQL and MariaDB: the same, where the driver calls it operational."""

STATEMENT_CLASSES = frozenset({"21", "42", "44", "54"})
"""PostgreSQL: more rows than one, a mistake in the statement, a view that refuses a row, more than an index takes."""
MISTAKES = frozenset({1052, 1054, 1064, 1093, 1110, 1111, 1136, 1146, 1241, 1242, 1318, 1582, 1630})
TOO_LARGE = 1153
"""MySQL and MariaDB: more in one packet than max_allowed_packet."""
REFUSALS = frozenset({1118, 1348, 1364, 1369, 1442, 1471, 1526, 1906, 3105})
"""MySQL and MariaDB: mistakes in the statement, and what this table does not let it do."""
SQLITE_STATEMENT = 1
"""SQLite: its general error. What is wrong with the file or the disk has codes of its own."""

READ_ONLY = "It can only be read: make it writable again, or let the URL lead to the primary."
STANDBY = (
    "This server is a standby, which can only be read: let the URL lead to the primary, or name all hosts in it "
    "(postgresql://db1,db2/shop)."
)
NO_SCHEMA = (
    "The search_path of this user leads to no schema: name one (the setting schema, such as public), or give the user "
    "a search_path."
)
NO_ROOM = "Make room on its disk; what waits goes on by itself."
NO_FILE = "The folder must exist, and this process must be allowed to write there."
A_FOLDER = "Let the URL name a file in it: sqlite:///FOLDER/penstock.db."
NO_DATABASE = (
    "Let the URL lead to a SQLite file, or to one that does not exist yet; a damaged one comes from a backup."
)
NO_RIGHT = (
    "Give this user the right, or let one that has it run `penstock migrate` and set auto_migrate to false."
)
TOO_LONG = "See what keeps it (`penstock doctor` shows old transactions), or raise statement_timeout."
NO_SUCH_DATABASE = (
    "Create that database on the server, or correct its name in the URL; Penstock makes only its tables."
)
NO_LOGIN = "Correct the user or the password in the URL."
NO_TLS = "Let the connection use TLS (no ssl_disabled in the URL), or `pip install cryptography`."
NO_TABLE = "Something has removed it: restore a backup, or drop what is left of the tables and run `penstock migrate`."
NO_PLACE = (
    "Its connections are all taken: let it have more (max_connections), or see who needs so many; behind a pooler "
    "fewer will do."
)
NO_NUMBER = "The numbers of the table's rows are used up: `penstock doctor --repair` sets them back."
AGAIN = "Another transaction went first, and this one was undone: do it again."
NO_OPTION = "Correct what the URL says behind the ?."
POOLER_REFUSES = (
    "A pooler stands before the database and refuses what the URL begins a connection with: leave that out of the URL, "
    "or let the pooler take it (PgBouncer: ignore_startup_parameters)."
)
UNREACHABLE = "See that it runs and can be reached from here, then try again."

ADVICE = {
    "readonly": READ_ONLY,
    "read-only": READ_ONLY,
    "read only": READ_ONLY,
    "during recovery": STANDBY,
    "no schema has been selected": NO_SCHEMA,
    "disk is full": NO_ROOM,
    "disk full": NO_ROOM,
    "no space left": NO_ROOM,
    "disk i/o": NO_ROOM,
    "is a folder": A_FOLDER,
    "unable to open": NO_FILE,
    "file is not a database": NO_DATABASE,
    "image is malformed": NO_DATABASE,
    'fatal:  database "': NO_SUCH_DATABASE,
    "unknown database": NO_SUCH_DATABASE,
    'fatal:  role "': NO_LOGIN,
    "authentication failed": NO_LOGIN,
    "no password supplied": NO_LOGIN,
    "access denied for user": NO_LOGIN,
    "'cryptography' package is required": NO_TLS,
    "too many clients": NO_PLACE,
    "too many connections": NO_PLACE,
    "remaining connection slots": NO_PLACE,
    "auto-increment value": NO_NUMBER,
    '(167, "out of range': NO_NUMBER,
    "reached maximum value of sequence": NO_NUMBER,
    f"duplicate entry '{2**63 - 1}'": NO_NUMBER,  # MySQL gives the last number again
    "deadlock": AGAIN,
    "could not serialize": AGAIN,
    "rollback the current transaction": AGAIN,
    "invalid connection option": NO_OPTION,
    "invalid sslmode": NO_OPTION,
    "unsupported startup parameter": POOLER_REFUSES,
    "permission denied": NO_RIGHT,
    "command denied": NO_RIGHT,
    "statement timeout": TOO_LONG,
    "max_statement_time": TOO_LONG,
    "maximum statement execution time": TOO_LONG,
}

SQLITE_INTERRUPT = 9

MAY_PASS = frozenset({None, TOO_LONG, AGAIN, READ_ONLY, STANDBY, NO_ROOM, NO_PLACE})
"""Errors that end by themselves: after a failover, or when other clients are done."""

MOMENTARY_STATES = frozenset({"40001", "40P01", "55P03", "57014", "57P01", "57P05", "25P03", "25P04"})
MOMENTARY_CODES = frozenset({0, 1020, 1205, 1213, 1412, 1927, 1969, 2006, 2013, 3024, 3101, 4031})
UNREADY = frozenset({"53300", "57P03", 1040, 1047})
"""The server accepts no client: it is starting, or has no connection left."""
CLOSED = (
    "closed the connection",
    "connection is closed",
    "terminating connection",
    "no connection to the server",
)
"""Another client was in the way, or the server closed an idle connection: the next try may succeed."""


def cause_of(error: BaseException) -> BaseException:
    """The driver's own error."""
    if type(error).__module__ == "sqlalchemy.exc":  # which need not be there
        error = getattr(error, "orig", None) or error
    return error


def is_outage(error: BaseException) -> bool:
    """True if the database itself fails, whatever it is given."""
    cause = cause_of(error)
    kinds = kinds_of(cause)
    if isinstance(cause, OSError | MemoryError):
        return True
    return bool(kinds & OUTAGES) and not _is_a_value(cause, kinds)


def _is_a_value(cause: BaseException, kinds: set[str]) -> bool:
    """True if the error was caused by one parameter's value."""
    if cause.args and cause.args[0] in VALUE_CODES:
        return True
    state, unsent = getattr(cause, "sqlstate", ""), "ProgrammingError" in kinds
    if state is None or "binding parameter" in str(cause):
        return unsent  # the driver cannot send a value of that type
    return state in VALUE_STATES or "no such function" in str(cause)


def is_of_the_statement(error: BaseException) -> bool:
    """True if the error was caused by this very statement. Errors with advice, as on missing tables, do not count."""
    cause = cause_of(error)
    said = cause.args[0] if cause.args else None
    if isinstance(said, int):
        return said in MISTAKES or said in REFUSALS
    state = getattr(cause, "sqlstate", None) or ""
    mistaken = state[:2] in STATEMENT_CLASSES or getattr(cause, "sqlite_errorcode", 0) == SQLITE_STATEMENT
    return mistaken and advice(cause) is None


def is_momentary(error: BaseException) -> bool:
    """True if the error is likely to pass: the caller tries again at once, and logs it only if it stays."""
    cause = cause_of(error)
    cause = cause.__cause__ or cause if isinstance(cause, DatabaseUnavailable) else cause
    if getattr(cause, "sqlstate", None) in MOMENTARY_STATES or any(words in str(cause) for words in CLOSED):
        return True
    return bool(kinds_of(cause) & OUTAGES) and bool(cause.args) and cause.args[0] in MOMENTARY_CODES


def is_unready(error: BaseException) -> bool:
    """True if the server is there and lets no client in."""
    cause = cause_of(error)
    return getattr(cause, "sqlstate", None) in UNREADY or (bool(cause.args) and cause.args[0] in UNREADY)


def kinds_of(cause: BaseException) -> set[str]:
    return {kind.__name__ for kind in type(cause).__mro__}


def took_too_long(error: BaseException) -> bool:
    """True if a statement timed out."""
    return advice(error) == TOO_LONG or getattr(cause_of(error), "sqlite_errorcode", None) == SQLITE_INTERRUPT


def explained(error: Exception, where: str, *, passing: bool, hide: Callable[[str], str] = str) -> Exception:
    """The error as a user should see it. `hide` takes secrets out of its text."""
    if cause_of(error).args[:1] == (TOO_LARGE,):
        return SerializationError(hide(f"{cause_of(error).args[-1]}"))
    then = advice(error)
    ours = isinstance(error, PenstockError)  # whatever words are in it
    if isinstance(error, DatabaseUnavailable) or (not passing and (ours or then is None)):
        return error
    said = in_one_line(hide(f"{cause_of(error)}")).rstrip(". ")  # libpq's message has several lines
    stop = "" if said.endswith("?") else "."
    return DatabaseUnavailable(
        f"The database at {where} does not answer as it should: {said}{stop} {then or UNREACHABLE}", where
    )


def missing_table(error: BaseException, where: str, tables: Collection[str]) -> DatabaseUnavailable | None:
    """The error as a user should see it, if it says that one of these tables is not there."""
    cause = cause_of(error)
    known = getattr(cause, "sqlstate", None) == "42P01" or (cause.args and cause.args[0] == 1146)
    text = str(cause)
    if not known and not text.startswith("no such table"):
        return None
    table = next((name for name in sorted(tables, key=len, reverse=True) if name in text), None)
    if table is None:
        return None
    return DatabaseUnavailable(f"The database at {where} has no table {table} any more. {NO_TABLE}", where)


def raise_as(explained: Exception, error: Exception) -> NoReturn:
    """Raise the explanation from the error; if it is the error itself, keep its cause."""
    if explained is error:
        raise error
    raise explained from error


def advice(error: BaseException) -> str | None:
    """The advice for an error, if its text is known."""
    text = str(cause_of(error)).lower()
    return next((then for words, then in ADVICE.items() if words in text), None)


def ignore_errors(action: Callable[..., object], *args: object) -> None:
    """Clean up after an error without hiding it behind another."""
    try:
        action(*args)
    except Exception:
        return
