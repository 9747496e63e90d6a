"""Runs several workers at once, and counts how many handlers run at a time."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager

from penstock import Penstock
from tests.conformance.rows import rows
from tests.waiting import until


class Turnstile:
    """How many are inside, by key; and how many ever were at the same time."""

    def __init__(self) -> None:
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.passed: list[tuple[str, int]] = []

    @contextmanager
    def passing(self, *keys: str, number: int = 0) -> Iterator[None]:
        for key in keys:
            self.inside[key] += 1
            self.most[key] = max(self.most[key], self.inside[key])
        try:
            yield
        finally:
            self.passed.append((keys[0], number))
            for key in keys:
                self.inside[key] -= 1

    async def until_full(self, key: str, most: int) -> None:
        """Stay until so many have been inside at once: then it is sure that they may."""
        await until(lambda: self.most[key] >= most)


def together(apps: Sequence[Penstock], main: Callable[[], Awaitable[None]], **options: object) -> None:
    """Run `main` while every one of these apps has a worker, all on one event loop, each with its own connections."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            for app in apps:
                await stack.enter_async_context(app.worker(**options))  # type: ignore[arg-type]
            await asyncio.wait_for(main(), 110)

    asyncio.run(run())


async def all_ended(app: Penstock) -> None:
    """Until no job is left that has not come to its end."""
    left = "SELECT COUNT(*) FROM {job_states} WHERE status NOT IN ('succeeded', 'failed', 'cancelled', 'skipped')"

    def none_is_left() -> bool:
        return bool(rows(app, left)[0][0] == 0)

    async with asyncio.timeout(100):
        while not await asyncio.to_thread(none_is_left):  # noqa: ASYNC110 - what is looked at lies in the database
            await asyncio.sleep(0.05)


def held_slots(app: Penstock) -> int:
    """Slots that count for as long as a job is held, whether or not it still is."""
    return int(rows(app, "SELECT COUNT(*) FROM {slots} WHERE until = 4611686018427387904")[0][0])


def parked(app: Penstock) -> list[tuple[str, str]]:
    """(key, job) of those who wait, in the order of their lines."""
    found = rows(app, "SELECT limit_key, job_id FROM {parked} ORDER BY limit_key, tier, place")
    return [(key, str(job)) for key, job in found]
