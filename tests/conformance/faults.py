"""Making the database fail at a point, as drivers report it."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from pymysql.err import InternalError, OperationalError

from penstock import Penstock
from penstock.telemetry import fault_points


@contextmanager
def failing_at(point: str, error: Exception, times: int = 1) -> Iterator[list[str]]:
    """Raise the error the first times that the point is reached; the list tells how often that was."""
    struck: list[str] = []

    def strike(reached: str) -> None:
        if reached == point and len(struck) < times:
            struck.append(reached)
            raise error

    with fault_points.watching(strike):
        yield struck
    assert struck, f"{point} was never reached"


def disconnected(app: Penstock) -> Exception:
    """The connection is gone, and the client does not know whether the commit took place."""
    match app.database.dialect.name:
        case "postgresql":
            return psycopg.OperationalError("server closed the connection unexpectedly")
        case "mysql":
            return OperationalError(2013, "Lost connection to server during query")
        case _:
            return sqlite3.ProgrammingError("Cannot operate on a closed database.")


def starting_up(app: Penstock) -> Exception:
    """The server is there again, and refuses connections still."""
    match app.database.dialect.name:
        case "postgresql":
            return psycopg.errors.CannotConnectNow("the database system is starting up")
        case "mysql":
            return OperationalError(1047, "WSREP has not yet prepared node for application use")
        case _:
            return disconnected(app)


def deadlocked(app: Penstock) -> Exception:
    """The database chose us as the victim."""
    match app.database.dialect.name:
        case "postgresql":
            return psycopg.errors.DeadlockDetected("deadlock detected")
        case "mysql":
            return OperationalError(1213, "Deadlock found when trying to get lock")
        case _:
            return sqlite3.OperationalError("database is locked")


def out_of_disk(app: Penstock) -> Exception:
    """Nothing that passes by itself, and no fault of the row that was being written."""
    match app.database.dialect.name:
        case "postgresql":
            return psycopg.errors.DiskFull("could not extend file: No space left on device")
        case "mysql":
            return InternalError(1021, "Disk full; waiting for someone to free some space")
        case _:
            return sqlite3.OperationalError("database or disk is full")
