"""Ctrl-C while something waits for the database, in a program that goes on: a notebook, a shell, a server's request.

Whatever was taken on the way is given back; the next call does what it would have done.
"""

import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from penstock import Penstock
from penstock.testing import drain
from tests.conformance.tasks.looking import count
from tests.waiting import eventually

WAITS = {"_lock_file", "_ready", "_read_bytes"}
"""Where each database has its writers wait."""


def standing() -> set[str]:
    """The names of the functions that the main thread is in."""
    names = set()
    frame: FrameType | None = sys._current_frames()[threading.main_thread().ident or 0]
    while frame is not None:
        names.add(frame.f_code.co_name)
        frame = frame.f_back
    return names


@contextmanager
def interrupted(once: Callable[[], object], then: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Interrupt the main thread, as Ctrl-C does, as soon as it is so far."""

    def strike() -> None:
        eventually(once, pause=0.001)
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
    finally:
        thread.join()
        signal.signal(signal.SIGUSR2, before)


@pytest.mark.standard_profile
def test_while_an_enqueue_waits_for_others(
    app_on: Callable[..., Penstock], app: Penstock, database_url: str
) -> None:
    @app.task(name="note")
    def note() -> None: ...

    other = app_on(database_url)
    theirs = other.task(name="note")(note.function)
    note.enqueue()
    with other.database.sqlalchemy() as (connection, _):
        theirs.options(key="once", connection=connection).enqueue()
        with interrupted(lambda: WAITS & standing()):
            note.options(key="once").enqueue()
    again = note.options(key="once").enqueue()
    assert count(app, "jobs") == 2
    assert drain(app) == 2
    assert again.status == "succeeded"


def test_while_sqlite_waits_for_one_who_does_not_queue(
    app_on: Callable[..., Penstock], sqlite_url: str
) -> None:
    """The interrupt is felt when BEGIN is over: the transaction is open by then, and nobody is in it."""
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
