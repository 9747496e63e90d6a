"""Named points between two statements, where a test may end the process, freeze it, or make it fail.

Every transaction passes `<stage>.1`, `<stage>.2`, … before each statement, `<stage>.commit` before it commits
and `<stage>.committed` after, these two for each of its stages; the runtime adds points of its own. In
production nobody watches, and a point costs one truth test.
"""

from __future__ import annotations

import difflib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from penstock.errors import ConfigurationError

Watcher = Callable[[str], None]

_STAGE = re.compile(r'\.stage\("([a-z_]+)"\)')
_SINGLE = re.compile(r'points\.reach\("([a-z_.]+)"\)')

watched = False
_watchers: tuple[Watcher, ...] = ()


class SimulatedCrash(BaseException):
    """The process is to be thought of as dead from here on: nothing may catch this and go on."""

    def __init__(self, point: str) -> None:
        super().__init__(f"simulated crash at {point}")
        self.point = point


def reach(point: str) -> None:
    """Pass a point: whoever watches may stop us here."""
    for watcher in _watchers:
        watcher(point)


@cache
def known() -> tuple[frozenset[str], frozenset[str]]:
    """The stages of transactions, and the points beside them, read off the package itself: none can be missing."""
    texts = [file.read_text() for file in Path(__file__).parents[1].rglob("*.py")]
    stages = frozenset(name for text in texts for name in _STAGE.findall(text))
    return stages | {"transaction"}, frozenset(name for text in texts for name in _SINGLE.findall(text))


def check(point: str) -> None:
    """Refuse a name that no point has, and say which was probably meant."""
    stages, others = known()
    stage, _, part = point.partition(".")
    if point in others or (stage in stages and (part in ("commit", "committed") or part.isdigit())):
        return
    named = sorted(others | {f"{stage}.{part}" for stage in stages for part in ("1", "commit", "committed")})
    close = difflib.get_close_matches(point, named, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else f" Stages are {', '.join(sorted(stages))}."
    raise ConfigurationError(f"there is no point {point!r}.{hint}")


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    global watched, _watchers  # noqa: PLW0603 - one truth test per point is the whole price in production
    _watchers = (*_watchers, watcher)
    watched = True
    try:
        yield
    finally:
        first = _watchers.index(watcher)
        _watchers = _watchers[:first] + _watchers[first + 1 :]
        watched = bool(_watchers)


def watch(wanted: str | None) -> None:
    """Obey the setting `crash_at`, `point[:visit][:kill|stop|exit|raise]`, for as long as the process lives."""
    if wanted:
        global watched, _watchers  # noqa: PLW0603 - as above
        _watchers = (*_watchers, crasher(wanted))
        watched = True


def crasher(wanted: str) -> Watcher:
    """A watcher that strikes at the n-th visit of a point."""
    point, _, rest = wanted.partition(":")
    check(point)
    parts = rest.split(":") if rest else []
    visit = next((int(part) for part in parts if part.isdigit()), 1)
    action = next((part for part in parts if not part.isdigit()), "kill")
    lock = threading.Lock()
    left = visit

    def strike(reached: str) -> None:
        nonlocal left
        if reached != point:
            return
        # Held until the end: another thread must not get past this point while we are about to die at it.
        with lock:
            left -= 1
            if left == 0:
                _act(action, reached)

    return strike


def _act(action: str, point: str) -> None:
    match action:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            # To this thread first: it goes no further.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case "exit":
            os._exit(1)
        case "raise":
            raise SimulatedCrash(point)
        case _:
            raise ValueError(f"unknown action {action!r} at {point}; use kill, stop, exit or raise")
