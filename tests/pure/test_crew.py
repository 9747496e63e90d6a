"""What the crew tells of claims that it will never finish."""

import asyncio
from types import SimpleNamespace
from typing import Any

from penstock.queue.jobs import Claim
from penstock.runtime.crew import Crew
from penstock.telemetry.events import Stream
from penstock.values.retry import Retry


def claim(number: int) -> Any:
    return SimpleNamespace(
        job_id=f"job-{number}", generation=1, token=number, task="note", options=None, retry_count=0
    )


def test_claims_that_are_lost_are_forgotten_whether_they_run_or_wait() -> None:
    """Or the process would believe for ever to hold them, and have that much less room in their queues."""
    forgotten: list[Claim] = []

    async def hang() -> None:
        await asyncio.Event().wait()

    settings = SimpleNamespace(timeout=None, retries=Retry())
    task = SimpleNamespace(settings=settings, executor="async", function=hang, codec=None)

    async def look() -> None:
        around: Any = SimpleNamespace()
        crew = Crew(around, lambda _: task, lambda _: None, forgotten.extend, Stream(), 1, 5, 1)
        crew.hand_over([claim(1), claim(2)])
        await asyncio.sleep(0)
        assert (len(crew.active), len(crew.waiting)) == (1, 1)
        crew.abandon_all()
        await asyncio.sleep(0.01)
        assert crew.busy == 0

    asyncio.run(look())
    assert sorted(claim.token for claim in forgotten) == [1, 2]
