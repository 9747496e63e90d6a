"""queue/limits/admission: Limits in pipelines: several rates, a concurrency and a key of each tenant at once, exact,
and no slot is lost.

What one limit does by itself, under kills and among many workers: `tests/conformance/limits`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock import Concurrency, Penstock, Rate
from tests.conformance.concurrent_workers import Turnstile, all_ended, held_slots, parked, together
from tests.conformance.rows import rows

LIMITS = [
    Concurrency(2, key=lambda call: call["order"].split(":")[0]),
    Concurrency(3),
    Rate(20, per=0.5),
    Rate(8, per=0.5, key=lambda call: call["order"].split(":")[0]),
]


def test_36_steps_keep_several_rates_a_concurrency_and_a_limit_for_each_tenant(
    make_app: Callable[..., Penstock],
) -> None:
    apps, gate = [make_app() for _ in range(3)], Turnstile()
    for app in apps:

        @app.task(name="orders")
        async def orders(tenants: str, each: int) -> list[str]:
            return [f"{tenant}:{number}" for number in range(each) for tenant in tenants]

        @app.task(name="charge", limits=LIMITS)
        async def charge(order: str) -> str:
            with gate.passing(order.split(":")[0], "all"):
                await asyncio.sleep(0.002)
            return order

        @app.pipeline(name="billing")
        def billing(tenants: str, each: int) -> Any:
            return charge.map(orders(tenants, each)).collect()

    async def main() -> None:
        started = [await app.pipelines["billing"].trigger_async("abc", 5) for app in apps]
        await all_ended(apps[0])
        for run in started:
            assert run.result(0) == [f"{tenant}:{number}" for number in range(5) for tenant in "abc"]

    together(apps, main)
    assert gate.most["all"] <= 3
    assert max(gate.most[tenant] for tenant in "abc") <= 2
    for stem, most in (("rate/0.5s of charge", 20), ("rate/0.5s of charge: key=a", 8)):
        ends = rows(apps[0], "SELECT until FROM {slots} WHERE limit_key = :key AND token <> 0", key=stem)
        starts = sorted(until for (until,) in ends)
        assert all(later - first >= 500_000 for first, later in zip(starts, starts[most:], strict=False))
    assert (held_slots(apps[0]), parked(apps[0])) == (0, [])
