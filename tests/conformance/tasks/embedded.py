"""Running something beside an embedded worker."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock import Penstock
from penstock.runtime.worker import Worker

T = TypeVar("T")


def beside_a_worker(app: Penstock, main: Callable[[Worker], Awaitable[T]], **options: object) -> T:
    """Run a coroutine while a worker of this app runs on the same loop."""

    async def both() -> T:
        async with app.worker(**options) as worker:  # type: ignore[arg-type]
            return await asyncio.wait_for(main(worker), 110)

    return asyncio.run(both())


async def until(look: Callable[[], object], seconds: float = 60) -> None:
    """Yield to the loop until there is something true to see."""
    async with asyncio.timeout(seconds):
        while not look():  # noqa: ASYNC110 - what is looked at lies in the database, and cannot set an event
            await asyncio.sleep(0.005)
