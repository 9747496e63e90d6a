"""What asyncio knows of a thread: the loop that turns in it and, since Python 3.14, the task that it is in.

Here the loops of all hosts turn in one thread, and are left in the middle of a task. What belongs to a loop comes and
goes with it.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any


def turn_to(before: Any, after: Any) -> None:
    """From one loop to another; None: to none."""
    if sys.version_info >= (3, 14) and before is not None:
        before.task = asyncio.tasks._swap_current_task(before, None)  # type: ignore[attr-defined, unused-ignore]
    asyncio._set_running_loop(after)
    if sys.version_info >= (3, 14) and after is not None:
        asyncio.tasks._swap_current_task(after, after.task)  # type: ignore[attr-defined, unused-ignore]
