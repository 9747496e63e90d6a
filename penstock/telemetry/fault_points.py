"""Named points between two statements, where a test may end the process, freeze it, or make it fail.

Every transaction passes `<stage>.1`, `<stage>.2`, … before each statement, `<stage>.commit` before it commits
and `<stage>.committed` after, these two for each of its stages; the runtime adds points of its own. In
production there is no watcher, and a point costs one truth test.
"""

from __future__ import annotations

import difflib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.errors import ConfigurationError

Watcher = Callable[[str], None]

# In alphabetical order, one per line: a test compares them with the code.
STAGES = frozenset(
    {
        "admit",
        "advance",
        "answer_stacks",
        "apply_rows",
        "ask_stacks",
        "backfill",
        "beat",
        "bring_back",
        "bury",
        "cancel",
        "cancel_children",
        "cancel_run",
        "chain",
        "chain_start",
        "children",
        "claim",
        "claim_rows",
        "confirm_timeout",
        "context",
        "control",
        "create_schedule",
        "deadline",
        "declare",
        "declare_again",
        "delete",
        "delete_schedule",
        "deliver",
        "discard",
        "discover",
        "effects",
        "empty",
        "end_losers",
        "enqueue",
        "expand",
        "fire",
        "fire_ticks",
        "fleet",
        "fold",
        "forget_cancellations",
        "fork",
        "give_up",
        "give_up_unknown",
        "glance",
        "hydrate",
        "lease",
        "leave",
        "limits",
        "limits_free",
        "limits_sweep",
        "limits_tidy",
        "limits_widen",
        "marker",
        "mend",
        "migrate_run",
        "pause",
        "pause_schedule",
        "presume",
        "progress",
        "promote",
        "prune",
        "prune_audits",
        "prune_rollups",
        "prune_runs",
        "prune_stacks",
        "prune_ticks",
        "put_off",
        "put_off_schedule",
        "reap",
        "reclaim",
        "recover_rows",
        "register",
        "release",
        "release_unknown",
        "remind",
        "renew_rows",
        "repair",
        "request_visits",
        "requeue",
        "rerun",
        "resume",
        "resume_schedule",
        "resume_token",
        "retry",
        "revive",
        "sample",
        "second_look",
        "settle",
        "signal",
        "start",
        "sweep",
        "sweep_rows",
        "tally",
        "tally_rows",
        "then",
        "timer",
        "transaction",
        "trigger",
        "trigger_schedule",
        "update",
        "update_schedule",
        "wait_timeout",
    }
)
"""Stages of transactions; `transaction` is one that has none."""
OTHERS = frozenset(
    {
        "execute.after",
        "execute.before",
        "hand_over",
    }
)
"""Points beside transactions."""

watched = False
_watchers: tuple[Watcher, ...] = ()
_unwatched = threading.local()


class SimulatedCrash(BaseException):
    """Simulates the death of the process at this point: no code may catch it and go on."""

    def __init__(self, point: str) -> None:
        super().__init__(f"simulated crash at {point}")
        self.point = point


def reach(point: str) -> None:
    """Pass a point: a watcher may stop us here."""
    if getattr(_unwatched, "depth", 0):
        return
    for watcher in _watchers:
        watcher(point)


@contextmanager
def unwatched() -> Iterator[None]:
    """Hide the points that this thread passes inside: it reads hints in the background, and nothing depends on them."""
    _unwatched.depth = getattr(_unwatched, "depth", 0) + 1
    try:
        yield
    finally:
        _unwatched.depth -= 1


def check(point: str) -> None:
    """Refuse a name that no point has, and say which was probably meant."""
    stage, _, part = point.partition(".")
    if point in OTHERS or (stage in STAGES and (part in ("commit", "committed") or part.isdigit())):
        return
    named = sorted(OTHERS | {f"{stage}.{part}" for stage in STAGES for part in ("1", "commit", "committed")})
    close = difflib.get_close_matches(point, named, n=1, cutoff=0.5)
    hint = f" Did you mean {close[0]!r}?" if close else f" Stages are {', '.join(sorted(STAGES))}."
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
    """Follow the setting `crash_at`, `point[:visit][:kill|stop|exit|raise]`, as long as the process lives."""
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
        # The lock is held until the process ends, so that no other thread passes this point meanwhile.
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
            # The signal goes to this thread first, which stops here.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case "exit":
            os._exit(1)
        case "raise":
            raise SimulatedCrash(point)
        case _:
            raise ValueError(f"unknown action {action!r} at {point}; use kill, stop, exit or raise")
