"""Calls the user's `on_lost` for rows whose claims were lost: only the user knows how to undo what a handler did."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from penstock.async_bridge import in_thread
from penstock.reconcile.item import Item
from penstock.reconcile.outcome import VisitOutcome
from penstock.runtime.service import call_on_loop
from penstock.values.typed_json.annotations import is_async, waited_for

log = logging.getLogger("penstock")


async def undo(hook: Callable[..., Any], item: Item, values: Mapping[str, Any] | None) -> None:
    """Call `on_lost`, and log what it raises: no caller waits for it."""
    try:
        if is_async(hook):
            await hook(item, values)
        else:
            await waited_for(await in_thread(hook, item, values))
    except asyncio.CancelledError:
        raise
    except BaseException:  # SystemExit would end the loop, and the worker with it
        log.warning("%r was lost, and its on_lost has failed", item, exc_info=True)


class LostRows:
    """The calls of `on_lost` of one reconciler, on the worker's loop."""

    def __init__(self, hook: Callable[..., Any] | None) -> None:
        self.hook = hook
        self.loop = asyncio.get_running_loop()
        self._undoing: set[asyncio.Task[None]] = set()

    def call_on_lost(self, item: Item, end: VisitOutcome | None) -> None:
        """From any thread: call `on_lost` for a visit whose outcome was not written."""
        if self.hook is not None:
            call_on_loop(self.loop, self._undo, self.hook, item, None if end is None else dict(end.values))

    def _undo(self, hook: Callable[..., Any], item: Item, values: Mapping[str, Any] | None) -> None:
        task = self.loop.create_task(undo(hook, item, values))
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)
