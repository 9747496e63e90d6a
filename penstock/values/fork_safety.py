"""Resets objects in a forked child, which has the parent's objects but neither its threads nor the right to its
connections.

A web server that loads the application and then forks its workers is the usual case.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Protocol, TypeVar
from weakref import WeakSet

from penstock.errors import DatabaseError

log = logging.getLogger("penstock")


FORKED = (
    "this process was forked inside a transaction, which is its parent's: nothing can be done about it here. Fork "
    "before the block, or start another program (subprocess); a child that was forked inside is to end with os._exit()"
)


class ResetsAfterFork(Protocol):
    def reset_after_fork(self) -> None:
        """Called in a forked child: reset the object, without closing what belongs to the parent."""


class PreparesForFork(Protocol):
    def wait_for_writers(self) -> None:
        """Called before a fork, by the thread that forks."""

    def go_on(self) -> None:
        """Called in the parent after the fork."""


_alive: WeakSet[ResetsAfterFork] = WeakSet()
_preparing: WeakSet[PreparesForFork] = WeakSet()
_prepared: list[PreparesForFork] = []


def register_reset_after_fork(owner: ResetsAfterFork) -> None:
    """Call `reset_after_fork` of this object in every child that is forked from now on."""
    _alive.add(owner)


def prepare_for_forks(owner: PreparesForFork) -> None:
    """Call `wait_for_writers` and `go_on` of this object around every fork from now on."""
    _preparing.add(owner)


def refuse_copy(process: int) -> None:
    """Raise in a forked child that uses a transaction which its parent began."""
    if os.getpid() != process:
        raise DatabaseError(FORKED)


def _prepare() -> None:
    _prepared[:] = _preparing
    for owner in _prepared:
        _each(owner, owner.wait_for_writers)


def _go_on() -> None:
    for owner in _prepared:
        _each(owner, owner.go_on)
    _prepared.clear()


def _reset() -> None:
    _prepared.clear()
    for owner in list(_alive):
        _each(owner, owner.reset_after_fork)


def _each(owner: object, step: Callable[[], None]) -> None:
    try:
        step()
    except Exception:
        # An error of one object must not keep the others from being called; there is no caller to raise it to.
        log.exception("%s raised an error at a fork of this process", type(owner).__name__)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_prepare, after_in_parent=_go_on, after_in_child=_reset)


# Properties that are worked out once, at their first use.
#
# Python 3.11 holds a lock meanwhile, one for all objects of the class: a child forked by another thread just then
# would wait for it for ever. Newer versions hold no lock, and neither do we: two threads may both work it out.

T = TypeVar("T")


class cached_property(functools.cached_property[T]):
    """`functools.cached_property` without its lock."""

    def __init__(self, func: Callable[[Any], T]) -> None:
        super().__init__(func)
        self.lock = nullcontext()
