"""How the pump waits: for an outcome, a wake-up from here or elsewhere, or the time to look by itself."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from penstock.database.listeners import Listener
from penstock.queue.wakeups import ENDED, Wakeups
from penstock.runtime.service import Service, Turn
from penstock.telemetry.events import Stream


class Waker:
    """The pump waits here. Any thread may wake it; a wake-up that comes while it does not wait is kept."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._lock = threading.Lock()
        self._set = False
        self._subjects: set[str] = set()
        self._closed = False

    def wake(self, subject: str | None = None) -> None:
        if subject is None and self._set:
            return  # the waiting thread has not looked yet, and will look at everything
        with self._lock:
            if subject is not None:
                self._subjects.add(subject)
            if not self._set and not self._closed:
                self._set = True
                os.write(self._write, b"!")

    def wait(self, timeout: float) -> set[str]:
        """Wait; the subjects of the wake-ups that came."""
        heard = self.listener.wait(self._read, timeout)
        with self._lock:
            if self._set:
                self._set = False
                with suppress(BlockingIOError):
                    os.read(self._read, 16)
            subjects, self._subjects = self._subjects | set(heard), set()
        return subjects

    def close(self) -> None:
        with self._lock:
            self._closed = True
            os.close(self._read)
            os.close(self._write)
        self.listener.close()


# Passes on to this process what other processes say.


class ResultListener(Service):
    """Listens in a thread of its own."""

    def __init__(self, listener: Listener, wakeups: Wakeups, stream: Stream) -> None:
        super().__init__(stream)
        self.waker = Waker(listener)
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


class Relay(ResultListener):
    """Tells callers that wait for results that something has ended."""

    name = "relay"

    def turn(self) -> Turn:
        if self.waker.wait(60.0) and not self.stopping.is_set():
            self.wakeups.relay(ENDED)
        return Turn.WORKED
