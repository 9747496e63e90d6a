"""What a handler did outside the database may have to be undone, when its row was lost; only the user knows how."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from penstock.reconcile.item import Item
from penstock.values.annotations import is_async, waited_for

log = logging.getLogger("penstock")


async def undo(hook: Callable[..., Any], item: Item, values: Mapping[str, Any] | None) -> None:
    """Call `on_lost`. Nobody waits for it: what it raises is said here."""
    try:
        if is_async(hook):
            await hook(item, values)
        else:
            await waited_for(await asyncio.to_thread(hook, item, values))
    except Exception:
        log.warning("%r was lost, and its on_lost has failed", item, exc_info=True)
