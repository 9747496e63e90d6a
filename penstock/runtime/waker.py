"""How the pump waits: for an outcome, a wake-up from here or elsewhere, or the time to look by itself."""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from penstock.database.ears import Ear


class Waker:
    """One place to wait at. Anybody may wake it; a wake that comes while nobody waits is kept."""

    def __init__(self, ear: Ear) -> None:
        self.ear = ear
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._lock = threading.Lock()
        self._set = False
        self._subjects: set[str] = set()
        self._closed = False

    def wake(self, subject: str | None = None) -> None:
        if subject is None and self._set:
            return  # whoever waits has not looked yet, and will look at everything
        with self._lock:
            if subject is not None:
                self._subjects.add(subject)
            if not self._set and not self._closed:
                self._set = True
                os.write(self._write, b"!")

    def wait(self, timeout: float) -> set[str]:
        """Wait; the subjects of the wake-ups that came."""
        heard = self.ear.wait(self._read, timeout)
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
        self.ear.close()
