"""Stacks as text: of the threads of a process, and of the asyncio tasks of its event loop."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from asyncio import AbstractEventLoop
from collections.abc import Iterable

MOST = 100_000
"""Characters of all stacks together; the rest is left out."""
MOST_TASKS = 200
CUT = "\n(there is more)\n"


def all_stacks(loop: AbstractEventLoop | None) -> str:
    """The stacks of all other threads, the main thread first, and of the tasks of a loop. Plain ASCII, bounded.

    Threads that stand at the same place, as those of an idle pool do, share one stack.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    places: dict[str, list[str]] = {}
    for ident, frame in sys._current_frames().items():
        if ident != threading.get_ident():
            place = "".join(traceback.format_stack(frame))
            places.setdefault(place, []).append(names.get(ident, str(ident)))
    main = threading.main_thread().name
    ordered = sorted(places.items(), key=lambda item: (main not in item[1], sorted(item[1])))
    parts = [_titled("Thread", sorted(named), place) for place, named in ordered]
    if loop is not None and not loop.is_closed():
        parts.append(of_tasks(asyncio.all_tasks(loop)))
    found = "\n".join(parts).replace("\0", "\\x00").encode("ascii", "backslashreplace").decode()
    return found if len(found) <= MOST else found[: MOST - len(CUT)] + CUT


def of_tasks(tasks: Iterable[asyncio.Task[object]]) -> str:
    """Where asyncio tasks stand, along everything that they await."""
    places: dict[str, list[str]] = {}
    for task in list(tasks)[:MOST_TASKS]:
        places.setdefault("".join(traceback.format_list(_frames(task))), []).append(task.get_name())
    return "\n".join(_titled("asyncio task", sorted(named), place) for place, named in places.items())


def _titled(kind: str, names: list[str], place: str) -> str:
    return f"{kind}{'' if len(names) == 1 else 's'} {', '.join(names)} (most recent call last):\n{place}"


def _frames(task: asyncio.Task[object]) -> list[traceback.FrameSummary]:
    found: list[traceback.FrameSummary] = []
    waiting: object = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        found += traceback.extract_stack(frame, limit=1)
        waiting = getattr(waiting, "cr_await", None)
    return found
