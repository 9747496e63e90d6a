"""The wake-up relay: one listening connection for all children of a supervisor, and a pipe to each.

PostgreSQL (up to 18) wakes every listening session of a database at each NOTIFY, whichever channel. With a session for
each child, that is most of what a job costs when many are idle.

Nothing rests on the relay. What it passes on are hints, and each child finds out by its idle check whether they arrive
(see `pump/idle`); a child that hears nothing polls.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from penstock.database.database import Database
from penstock.database.listeners import (
    CONNECTED,
    ECHO,
    END,
    LOST,
    SUBJECT,
    NotifyConnection,
    RelayedListener,
    is_echo,
    new_channel,
)
from penstock.runtime.service import Service, Turn
from penstock.telemetry.events import Stream

LONGEST_WAIT = 60.0
SOON = 1.0
"""Seconds until another try to reach a child whose pipe is full."""
LONGEST_TEXT = 1000
"""No wake-up of ours has more characters; a message of up to 4,096 bytes goes into a pipe whole or not at all."""


@dataclass(slots=True)
class Outlet:
    """The way to one child. Only the thread of the relay uses it, or the supervisor while that thread rests."""

    channel: str
    pipe: int | None = None
    is_told: bool = False
    """True if the child knows of the present connection. If not, it does not count on us, and is told nothing."""

    def tell(self, kind: bytes, text: str = "") -> bool:
        """Write a message; False if there is no room for it, or no child."""
        if self.pipe is None:
            return False
        try:
            os.write(self.pipe, kind + text.encode(errors="replace") + END)
        except BlockingIOError:
            return False
        except OSError:
            self.close()
            return False
        return True

    def close(self) -> None:
        pipe, self.pipe, self.is_told = self.pipe, None, False
        if pipe is not None:
            os.close(pipe)


class WakeupRelay(Service):
    """Passes on to each child what is said to it, and to all what is said to all.

    A child that does not read, because it is frozen or its interpreter is busy, loses what does not fit into its pipe.
    As soon as there is room it is told of a new connection, which means: look for yourself, and check anew.
    """

    name = "wake-up relay"

    def __init__(self, database: Database, channel: str, children: int, stream: Stream) -> None:
        super().__init__(stream)
        self.outlets = [Outlet(new_channel()) for _ in range(children)]
        self.connection = NotifyConnection(database, (channel, *(each.channel for each in self.outlets)))
        self._by_channel = {each.channel: each for each in self.outlets}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)

    # from the supervisor's thread, while ours rests

    def rest(self, seconds: float) -> bool:
        """End the thread, that the process may be forked; the connection stays. False: not in time."""
        self.stop()
        self.join(seconds)
        if self.alive:
            return False
        self.stopping.clear()
        return True

    @contextmanager
    def listener(self, slot: int) -> Iterator[RelayedListener]:
        """A listener for the child that is forked within. Here its end of the pipe is closed at the end."""
        outlet = self.outlets[slot]
        outlet.close()
        pipe, outlet.pipe = os.pipe()
        os.set_blocking(outlet.pipe, False)
        listener = RelayedListener(pipe, outlet.channel)
        try:
            yield listener
        finally:
            listener.close()

    @property
    def handles(self) -> list[int]:
        """Open files that are the supervisor's own."""
        listening = self.connection.connection
        pipes = [outlet.pipe for outlet in self.outlets if outlet.pipe is not None]
        sockets = [] if listening is None else [listening.fileno()]
        return [self._wake_read, self._wake_write, *pipes, *sockets]

    def close(self, seconds: float) -> None:
        """End the thread. If it does not end in time, it ends with the process."""
        if self.rest(seconds):
            self.connection.close()
            for outlet in self.outlets:
                outlet.close()
            os.close(self._wake_read)
            os.close(self._wake_write)

    def stop(self) -> None:
        super().stop()
        os.write(self._wake_write, b"!")

    # the loop

    def turn(self) -> Turn:
        self._introduce()
        told = self.connection.receive(self._wake_read, LONGEST_WAIT if self._all_are_told() else SOON)
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        if told is None:
            self._tell_of_loss()
            return Turn.WORKED
        self._introduce()
        for channel, text in told:
            if len(text) <= LONGEST_TEXT:
                self._pass_on(channel, text)
        return Turn.WORKED

    def _all_are_told(self) -> bool:
        return all(outlet.is_told or outlet.pipe is None for outlet in self.outlets)

    def _introduce(self) -> None:
        """Tell the children of the connection that do not know of it yet."""
        if self.connection.connected:
            for outlet in self.outlets:
                outlet.is_told = outlet.is_told or outlet.tell(CONNECTED)

    def _tell_of_loss(self) -> None:
        for outlet in self.outlets:
            if outlet.is_told:
                outlet.tell(LOST)
                outlet.is_told = False

    def _pass_on(self, channel: str, text: str) -> None:
        one = self._by_channel.get(channel)
        kind = ECHO if is_echo(channel, text, "" if one is None else one.channel) else SUBJECT
        for outlet in self.outlets if one is None else (one,):
            outlet.is_told = outlet.is_told and outlet.tell(kind, text)
