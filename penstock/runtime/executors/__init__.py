"""Where handlers run: on the event loop, in threads, in processes of their own."""

from __future__ import annotations

from typing import Protocol

from penstock.runtime.executors.work import Interruption, Work
from penstock.values.outcome import Event, Released, Stopped


class Executor(Protocol):
    """Runs handlers of one kind, and reports to the owner of each work."""

    def start(self, work: Work) -> None:
        """Begin; the work's owner is told when it is over. Called on the event loop's thread."""

    def interrupt(self, work: Work, why: Interruption) -> None:
        """Stop a handler that has begun, as far as that is possible for its kind."""

    def has(self, work: Work) -> bool:
        """Whether anything here works on it, or will: asked on the event loop's thread."""

    def close(self) -> None: ...


def event_for(why: Interruption) -> Event | None:
    """The event that an interruption leads to; None: the claim is lost, and there is nothing to settle."""
    from_interruption = {
        Interruption.LOST: None,
        Interruption.CANCELLED: Stopped(),
        Interruption.RELEASED: Released(),
    }
    return from_interruption[why]
