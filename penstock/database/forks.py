"""After a fork the child has the parent's objects, but neither its threads nor the right to its connections.

A web server that loads the application and then forks its workers is the usual case.
"""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class Forgetful(Protocol):
    def forget(self) -> None:
        """In a forked child: begin anew, and leave alone what is the parent's."""


_alive: WeakSet[Forgetful] = WeakSet()


def forget_after_fork(owner: Forgetful) -> None:
    """Have it forget, in every child forked from now on, for as long as it lives."""
    _alive.add(owner)


def _forget() -> None:
    for owner in list(_alive):
        owner.forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
