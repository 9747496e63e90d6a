"""Moves the database's clock as one app sees it. Delays, retries and leases follow it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from penstock.values import parse
from penstock.values.parse import LONGEST, checked

if TYPE_CHECKING:
    from penstock.app import Penstock

SECOND = 1_000_000


class Travel:
    """A shift of the clock. It ends with `.back()` or with its `with` block."""

    def __init__(self, app: Penstock, seconds: float) -> None:
        self.app = app
        self.micros = int(seconds * SECOND)
        self._away = False

    def go(self) -> Travel:
        self._away = True
        self.app.database.move_clock(self.micros)
        return self

    def back(self) -> None:
        """Set the clock back; a second call does nothing."""
        if self._away:
            self._away = False
            self.app.database.move_clock(-self.micros)

    def __enter__(self) -> Travel:
        return self

    def __exit__(self, *_: object) -> None:
        self.back()


def travel(app: Penstock, seconds: float | timedelta) -> Travel:
    """Move the database's clock that this app sees by this many seconds, until `.back()`.

    As a context manager it goes back by itself: `with travel(app, 3600): drain(app)`. Shifts add up. Other
    apps and other processes on the same database keep their time.
    """
    given = checked("seconds", seconds, lambda value: parse.seconds(value, -LONGEST), "travel(app, ...)")
    return Travel(app, given).go()
