"""queue/limits/admission: Limits under real concurrency: several workers, each with its own connections, never one
too many, nothing stuck.
"""

import asyncio
from collections.abc import Callable

from penstock import Concurrency, Penstock, Rate
from penstock.telemetry.events import TroubleBegan
from tests.conformance.concurrent_workers import Turnstile, all_ended, held_slots, parked, together
from tests.conformance.rows import count, rows

MakeApp = Callable[..., Penstock]
WORKERS = 4


def troubled(apps: list[Penstock]) -> list[TroubleBegan]:
    found: list[TroubleBegan] = []
    for app in apps:
        app.events.on(TroubleBegan, found.append)
    return found


def test_36_never_one_too_many_at_the_same_time_over_all_workers(make_app: MakeApp) -> None:
    apps = [make_app() for _ in range(WORKERS)]
    gate, trouble = Turnstile(), troubled(apps)
    for app in apps:

        @app.task(name="work", limits=[Concurrency(3)])
        async def work(number: int) -> None:
            with gate.passing("work", number=number):
                await gate.until_full("work", 3)
                await asyncio.sleep(0.002 * (number % 4))

    async def main() -> None:
        await apps[0].tasks["work"].enqueue_many_async([(number,) for number in range(200)])
        await all_ended(apps[0])

    together(apps, main)
    assert gate.most["work"] == 3
    assert sorted(number for _, number in gate.passed) == list(range(200))
    assert (held_slots(apps[0]), count(apps[0], "parked"), count(apps[0], "claims")) == (0, 0, 0)
    assert not trouble


def test_36_never_too_many_starts_in_any_window(make_app: MakeApp) -> None:
    """By the database's clock, whichever second one looks at."""
    apps = [make_app() for _ in range(3)]
    gate, per, most = Turnstile(), 0.5, 5
    for app in apps:

        @app.task(name="work", limits=[Rate(most, per=per)])
        async def work(number: int) -> None:
            with gate.passing("work", number=number):
                await asyncio.sleep(0)

    async def main() -> None:
        await apps[0].tasks["work"].enqueue_many_async([(number,) for number in range(22)])
        await all_ended(apps[0])

    together(apps, main)
    starts = sorted(until - int(per * 1e6) for (until,) in rows(apps[0], "SELECT until FROM {slots}"))
    assert len(starts) == len(gate.passed) == 22
    assert min(later - first for first, later in zip(starts, starts[most:], strict=False)) >= per * 1e6
    # And no later than need be: five windows, and the way of the last through the queue.
    assert starts[-1] - starts[0] < 10 * per * 1e6


def test_36_several_limits_and_keys_at_once(make_app: MakeApp) -> None:
    """Each by itself, all together, shared with another task; locks in one order: no job waits for ever."""
    apps = [make_app() for _ in range(WORKERS)]
    gate, trouble = Turnstile(), troubled(apps)
    for app in apps:

        @app.task(
            name="charge",
            limits=[
                Concurrency(2, key="account"),
                Concurrency(5, name="bank"),
                Rate(40, per=0.4),
                Rate(15, per=0.4, key="account"),
            ],
        )
        async def charge(account: str, number: int) -> None:
            with gate.passing(account, "bank", number=number):
                await gate.until_full("bank", 5)
                await asyncio.sleep(0.003)

        @app.task(name="refund", limits=[Concurrency(5, name="bank")])
        async def refund(number: int) -> None:
            with gate.passing("refund", "bank", number=number):
                await gate.until_full("bank", 5)
                await asyncio.sleep(0.003)

    async def main() -> None:
        for number in range(40):
            await apps[number % 4].tasks["charge"].enqueue_async("abc"[number % 3], number)
        await apps[0].tasks["refund"].enqueue_many_async([(number,) for number in range(30)])
        await apps[0].tasks["charge"].enqueue_many_async([("abcd"[n % 4], n) for n in range(40, 80)])
        await all_ended(apps[0])

    together(apps, main)
    assert gate.most["bank"] == 5
    assert max(gate.most[account] for account in "abcd") <= 2
    assert len(gate.passed) == 110
    assert held_slots(apps[0]) == 0
    assert parked(apps[0]) == []
    assert not trouble


def test_36_a_busy_tenant_does_not_hold_up_the_others(app: Penstock) -> None:
    held, others = asyncio.Event(), Turnstile()

    @app.task(limits=[Concurrency(2, key="tenant")])
    async def work(tenant: str, number: int) -> None:
        with others.passing(tenant, number=number):
            if tenant == "busy":
                await held.wait()

    async def main() -> None:
        await work.enqueue_many_async([("busy", number) for number in range(300)])
        quick = await work.enqueue_many_async([(f"tenant {n}", n) for n in range(20)])
        for job in quick:
            await job.result_async(timeout=60)
        assert others.inside["busy"] == 2
        held.set()
        await all_ended(app)

    together([app], main)
    assert others.most["busy"] == 2
    assert [number for tenant, number in others.passed if tenant == "busy"] == sorted(
        number for tenant, number in others.passed if tenant == "busy"
    )
