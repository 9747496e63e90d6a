"""The actor of an act and its reason, held in a context variable: all code called from the block sees them.

Without a name, the actor inside a handler is the job, and anywhere else the user of this process and its host. An
actor that was named outside a handler does not count inside it, even if a test runs the handler in the same context:
the job acts, not its caller.
"""

from __future__ import annotations

import getpass
import os
import socket
from contextvars import ContextVar, Token
from functools import cache
from typing import NamedTuple, Protocol

from penstock.values import parse

LONGEST_BY = 200
LONGEST_WHY = 2000


class Working(Protocol):
    """The job that a handler runs for."""

    @property
    def id(self) -> str: ...

    @property
    def task(self) -> str: ...


class Actor(NamedTuple):
    """An actor's name, the reason, and the handler in which both were given."""

    by: str | None
    why: str
    within: Working | None = None


at_work: ContextVar[Working | None] = ContextVar("penstock_at_work", default=None)
_named: ContextVar[Actor | None] = ContextVar("penstock_acting", default=None)


class Acting:
    """`with app.acting(by="ann", why="ticket 12"):`, or `async with`. An inner one adds to the outer one."""

    def __init__(self, by: str | None = None, why: str | None = None) -> None:
        self._by = None if by is None else _checked("by", by, LONGEST_BY)
        self._why = None if why is None else _checked("why", why, LONGEST_WHY)
        self._tokens: list[Token[Actor | None]] = []

    def __enter__(self) -> Acting:
        outer = named_actor() or Actor(None, "")
        by = outer.by if self._by is None else self._by
        why = outer.why if self._why is None else self._why
        self._tokens.append(_named.set(Actor(by, why, at_work.get())))
        return self

    def __exit__(self, *_: object) -> None:
        _named.reset(self._tokens.pop())

    async def __aenter__(self) -> Acting:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()


def named_actor() -> Actor | None:
    """The actor that the caller has named, if any."""
    found = _named.get()
    return found if found is not None and found.within is at_work.get() else None


def actor() -> tuple[str, str]:
    """The name of the actor, and the reason."""
    found = named_actor()
    by, why = (found.by, found.why) if found is not None else (None, "")
    return by or _unnamed(), why


@cache
def this_process() -> str:
    """The user of this process and its host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = str(os.getuid()) if hasattr(os, "getuid") else "unknown"
    return f"{user}@{socket.gethostname()}"[:LONGEST_BY]


def _unnamed() -> str:
    job = at_work.get()
    return this_process() if job is None else f"job {job.id} of {job.task}"[:LONGEST_BY]


def _checked(name: str, given: object, longest: int) -> str:
    def read(value: object) -> str:
        if name == "by" and isinstance(value, str) and not value.strip():
            raise ValueError("give a text")
        return "" if value == "" else parse.text(value, longest)

    return parse.checked(name, given, read, "acting(...)")
