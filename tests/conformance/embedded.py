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
