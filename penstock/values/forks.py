"""After a fork the child has the parent's objects, but neither its threads nor the right to its connections.

A web server that loads the application and then forks its workers is the usual case.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet

from penstock.errors import DatabaseError

log = logging.getLogger("penstock")


FORKED = (
    "this process was forked inside a transaction, which is its parent's: nothing can be done about it here. Fork "
    "before the block, or start another program (subprocess); a child that was forked inside is to end with os._exit()"
)


class Forgetful(Protocol):
    def forget(self) -> None:
        """In a forked child: begin anew, and leave alone what is the parent's."""


class Careful(Protocol):
    def make_way(self) -> None:
        """This process is about to be forked, by the thread that calls this."""

    def go_on(self) -> None:
        """It was, and this is the parent."""


_alive: WeakSet[Forgetful] = WeakSet()
_careful: WeakSet[Careful] = WeakSet()
_making_way: list[Careful] = []


def forget_after_fork(owner: Forgetful) -> None:
    """Have it forget, in every child forked from now on, for as long as it lives."""
    _alive.add(owner)


def make_way_for_forks(owner: Careful) -> None:
    """Have it prepare for every fork of this process, for as long as it lives."""
    _careful.add(owner)


def refuse_copy(process: int) -> None:
    """What another process began, of which this one is a copy, is not ours to go on with."""
    if os.getpid() != process:
        raise DatabaseError(FORKED)


def _make_way() -> None:
    _making_way[:] = _careful
    for owner in _making_way:
        _each(owner, owner.make_way)


def _go_on() -> None:
    for owner in _making_way:
        _each(owner, owner.go_on)
    _making_way.clear()


def _forget() -> None:
    _making_way.clear()
    for owner in list(_alive):
        _each(owner, owner.forget)


def _each(owner: object, step: Callable[[], None]) -> None:
    try:
        step()
    except Exception:
        # The others must not be left out because of it, and nobody is there to hear of it but the log.
        log.exception("%s was hindered by a fork of this process", type(owner).__name__)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_make_way, after_in_parent=_go_on, after_in_child=_forget)
