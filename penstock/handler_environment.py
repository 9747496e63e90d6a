"""The environment of a running handler: its worker's database and identity, and the flags that others set for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.database.database import Database
from penstock.queue.jobs import Claim, Follow


@dataclass(slots=True)
class HandlerFlags:
    """Flags that others set for a running handler. Each only ever goes from false to true."""

    lost: bool = False
    cancelled: bool = False
    overdue: bool = False


@dataclass(slots=True)
class HandlerEnvironment:
    """Everything that a handler's job needs of the worker it runs in."""

    database: Database
    process: str
    follow: Follow
    payload_limit: int
    expand_limit: int
    report: Callable[[str, float, str], None]
    """Takes (job id, fraction, message); the worker writes it when convenient."""
    ending: Callable[[], bool] = lambda: False
    """Returns True while the event loop is being closed, which cancels everything on it."""
    hear: Callable[[BaseException], None] | None = None
    """Called with the exception that a handler raises, before it is stored as text. For tests."""

    def limit_for(self, claim: Claim) -> int:
        """How large the result may be, in bytes."""
        return self.expand_limit if claim.is_expanded else self.payload_limit
