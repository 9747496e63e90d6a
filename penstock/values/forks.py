"""After a fork the child has the parent's objects, but neither its threads nor the right to its connections.

A web server that loads the application and then forks its workers is the usual case.
"""

from __future__ import annotations

import logging
import os
from typing import Protocol
from weakref import WeakSet

log = logging.getLogger("penstock")


class Forgetful(Protocol):
    def forget(self) -> None:
        """In a forked child: begin anew, and leave alone what is the parent's."""


_alive: WeakSet[Forgetful] = WeakSet()


def forget_after_fork(owner: Forgetful) -> None:
    """Have it forget, in every child forked from now on, for as long as it lives."""
    _alive.add(owner)


def _forget() -> None:
    for owner in list(_alive):
        try:
            owner.forget()
        except Exception:
            # The others must not keep what is not theirs because of it, and nobody is there to hear of it but the log.
            log.exception("%s could not begin anew in a forked process", type(owner).__name__)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
