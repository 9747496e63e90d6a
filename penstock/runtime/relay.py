"""Passes on to this process what other processes say."""

from __future__ import annotations

from penstock.database.ears import Ear
from penstock.queue.wakeups import ENDED, Wakeups
from penstock.runtime.service import Service, Turn
from penstock.runtime.waker import Waker
from penstock.telemetry.events import Stream


class Listener(Service):
    """Listens in a thread of its own."""

    def __init__(self, ear: Ear, wakeups: Wakeups, stream: Stream) -> None:
        super().__init__(stream)
        self.waker = Waker(ear)
        self.wakeups = wakeups

    def stop(self) -> None:
        super().stop()
        self.waker.wake()

    def join(self, timeout: float | None = None) -> None:
        super().join(timeout)
        self.waker.close()

    def end(self) -> None:
        self.stop()
        self.join(5)


class Relay(Listener):
    """Tells those who wait for results that something has ended."""

    name = "relay"

    def turn(self) -> Turn:
        if self.waker.wait(60.0) and not self.stopping.is_set():
            self.wakeups.relay(ENDED)
        return Turn.WORKED
