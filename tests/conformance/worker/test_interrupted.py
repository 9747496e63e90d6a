"""database/connections: Ctrl-C while something waits for the database, in a program that goes on: a notebook, a shell,
a server's request.

Whatever was taken on the way is given back; the next call does what it would have done.
"""

import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from penstock import Penstock
from penstock.testing import drain
from tests.conformance.rows import count
from tests.waiting import eventually

WAITS = {"_lock_file", "_ready", "_await_answer"}
"""Where each database has its writers wait."""

PATIENCE = 30.0
"""Seconds that a writer waits for a lock. An interrupt is felt long before."""


def frames() -> Iterator[FrameType]:
    """The calls that the main thread is in, the innermost first."""
    frame: FrameType | None = sys._current_frames()[threading.main_thread().ident or 0]
    while frame is not None:
        yield frame
        frame = frame.f_back


def standing() -> set[str]:
    """The names of the functions that the main thread is in."""
    return {frame.f_code.co_name for frame in frames()}


class Waiting:
    """True once the main thread is seen in one and the same call of those that wait, many looks in a row."""

    def __init__(self) -> None:
        self.call: FrameType | None = None
        self.looks = 0

    def __call__(self) -> bool:
        call = next((frame for frame in frames() if frame.f_code.co_name in WAITS), None)
        self.looks = self.looks + 1 if call is not None and call is self.call else 0
        self.call = call
        return self.looks >= 50


@contextmanager
def interrupted(once: Callable[[], object], then: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Interrupt the main thread, as Ctrl-C does, as soon as it is so far."""
    struck: list[float] = []

    def strike() -> None:
        eventually(once, pause=0.001)
        struck.append(time.monotonic())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR2)
        then()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR2, interrupt)
    thread = threading.Thread(target=strike)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
        assert time.monotonic() - struck[0] < PATIENCE / 2
    finally:
        thread.join()
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.standard_profile
def test_while_an_enqueue_waits_for_others(app_on: Callable[..., Penstock], database_url: str) -> None:
    app = app_on(database_url, lock_timeout=PATIENCE, statement_timeout=PATIENCE)

    @app.task(name="note")
    def note() -> None: ...

    other = app_on(database_url)
    theirs = other.task(name="note")(note.function)
    note.enqueue()
    with other.database.sqlalchemy() as (connection, _):
        theirs.options(key="once", connection=connection).enqueue()
        with interrupted(Waiting()):
            note.options(key="once").enqueue()
    again = note.options(key="once").enqueue()
    assert count(app, "jobs") == 2
    assert drain(app) == 2
    assert again.status == "succeeded"


def test_while_sqlite_waits_for_one_who_does_not_queue(
    app_on: Callable[..., Penstock], sqlite_url: str
) -> None:
    """The interrupt is felt when BEGIN is over: the transaction is open by then, and no block has begun."""
    app = app_on(sqlite_url)
    app.prepare()
    other = sqlite3.connect(app.database.url.database or "", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")

    @app.task
    def note() -> None: ...

    with interrupted(
        lambda: {"begin", "enter"} & standing() == {"begin"}, then=lambda: other.execute("ROLLBACK")
    ):
        note.enqueue()
    other.execute("BEGIN IMMEDIATE")
    other.execute("ROLLBACK")
    other.close()
    note.enqueue()
    assert count(app, "jobs") == 1
