"""Findings of the doctor for the overview, made in the background: a page never waits for an examination.

A thread examines at most every half minute, and only while a viewer looks. What walks over many rows or inspects the
schema is left to the page of the doctor, where a viewer asks for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from penstock.operate import doctor
from penstock.operate.doctor import Check, CheckContext, Finding, Level
from penstock.values.fork_safety import register_reset_after_fork

if TYPE_CHECKING:
    from penstock.app import Penstock

log = logging.getLogger("penstock")

EVERY = 30.0
LAST_CHECK = 10.0
"""Seconds for which the close of an app waits for a check."""
THOROUGH = frozenset({doctor.damaged_rows, doctor.reconciled_tables, doctor.clock})
QUICK: tuple[Check, ...] = tuple(check for check in doctor.CHECKS if check not in THOROUGH)
ONLY_ASKED = frozenset({"rows", "reconcilers", "clock", "schema"})
"""The checks of THOROUGH and of the schema, by the names of their findings."""
PAGES = {
    "processes": "/processes",
    "claims": "/processes",
    "queues": "/processes",
    "waiting": "/jobs?status=available",
    "scheduled": "/jobs?status=scheduled",
    "timers": "/runs",
    "schedules": "/schedules",
    "tasks": "/jobs?status=available",
    "runs": "/runs",
    "dead letters": "/failures",
    "reconcilers": "/reconcilers",
}
"""The page that shows more of what a check has found."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """A finding, and the page with more about it."""

    check: str
    level: Level
    message: str
    advice: str
    page: str | None


class Troubles:
    """The latest findings of an app."""

    def __init__(self, app: Penstock) -> None:
        self._app = app
        self._found: list[Trouble] | None = None
        self._thorough: list[Trouble] = []
        """The findings of checks that run only when a viewer asks, from the last time."""
        self._due_at = 0.0
        self.reset_after_fork()
        register_reset_after_fork(self)
        app.closers.append(self.end)

    def reset_after_fork(self) -> None:
        """In a forked child: the thread that examines is the parent's."""
        self._lock = threading.Lock()
        self._examining: threading.Thread | None = None
        self._is_closing = False

    def latest(self) -> list[Trouble] | None:
        """Findings that are not ok, the worst first; None: the first examination is not finished."""
        with self._lock:
            if self._examining is None and time.monotonic() >= self._due_at:
                self._is_closing = False
                self._examining = threading.Thread(target=self._examine, name="penstock-doctor", daemon=True)
                self._examining.start()
        return None if self._found is None else [*self._found, *self._thorough]

    def end(self) -> None:
        """Run no further check, and wait for the one under way: the app is being closed."""
        self._is_closing = True
        examining = self._examining
        if examining is not None:
            examining.join(LAST_CHECK)

    def examine(self, checks: Iterable[Check] | None = None) -> list[Trouble]:
        """Run checks in this thread; all of them, if none are given."""
        app = self._app
        patient = CheckContext.of(app)
        if checks is not None:
            return [_trouble(finding) for finding in doctor.made(patient, checks)]
        found = [_trouble(finding) for finding in doctor.examine(patient)]
        self._thorough = [one for one in found if one.check in ONLY_ASKED and one.level is not Level.OK]
        return found

    def _examine(self) -> None:
        try:
            checks = takewhile(lambda _: not self._is_closing, QUICK)
            found = [one for one in self.examine(checks) if one.level is not Level.OK]
            if not self._is_closing:
                self._found = sorted(found, key=lambda one: one.level is not Level.PROBLEM)
        except Exception:
            log.exception("the dashboard could not examine the installation")
        finally:
            with self._lock:
                self._due_at = time.monotonic() + EVERY
                self._examining = None


def _trouble(finding: Finding) -> Trouble:
    return Trouble(finding.check, finding.level, finding.message, finding.advice, PAGES.get(finding.check))
