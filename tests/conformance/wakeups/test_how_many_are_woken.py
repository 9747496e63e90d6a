"""queue/wakeup_targets: Work wakes as many workers as it needs, and is not missed when the one that was woken is
gone.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from penstock import Penstock
from penstock.queue import processes
from penstock.queue.unknown_tasks import marks
from penstock.queue.wakeup_targets import FRESH, Fleet
from penstock.runtime.worker import Worker
from penstock.values.ids import new_id
from penstock.values.typed_json.json_text import dumps
from tests.conformance.idle_workers import PROMPT, at_rest, soon_calm
from tests.waiting import until

AppOn = Callable[..., Penstock]
WORKERS = 8


def declare(app: Penstock, begun: list[str], gate: asyncio.Event | None = None) -> Penstock:
    @app.task(name="note")
    async def note(name: str) -> None:
        begun.append(name)

    @app.task(name="hold")
    async def hold(name: str) -> None:
        begun.append(name)
        assert gate is not None
        await gate.wait()

    app.prepare()
    return app


@asynccontextmanager
async def resting(apps: Sequence[Penstock], **options: object) -> AsyncIterator[list[Worker]]:
    """A worker of each, as in processes of their own: they share nothing but the database."""
    async with AsyncExitStack() as stack:
        entered = [await stack.enter_async_context(app.worker(**options)) for app in apps]  # type: ignore[arg-type]
        for worker in entered:
            await at_rest(worker)
        yield entered


def looks(workers: Sequence[Worker], monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Which workers have looked for work from now on, and how often."""
    found: Counter[int] = Counter()
    for number, worker in enumerate(workers):
        plain = worker.pump.turn

        def counting(number: int = number, plain: Callable[[], object] = plain) -> object:
            found[number] += 1
            return plain()

        monkeypatch.setattr(worker.pump, "turn", counting)
    return found


async def acquainted(producer: Penstock) -> None:
    """The producer knows who there is."""
    producer.wakeups.fleet.read_at = -FRESH
    await asyncio.to_thread(producer.wakeups.read_targets)


@pytest.fixture
def apps(app_on: AppOn, postgres_url: str) -> list[Penstock]:
    return [app_on(postgres_url) for _ in range(WORKERS + 1)]


def test_one_job_wakes_one_worker_and_another_looks_later(
    apps: list[Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_calm(monkeypatch)
    begun: list[str] = []
    producer, *consumers = [declare(app, begun) for app in apps]

    async def main() -> None:
        async with resting(consumers) as workers:
            await acquainted(producer)
            for worker in workers:
                await at_rest(worker)
            looked = looks(workers, monkeypatch)
            for number in range(3):
                await producer.tasks["note"].enqueue_async(str(number))
                await until(lambda number=number: str(number) in begun, PROMPT)  # type: ignore[misc]
            await asyncio.sleep(0.3)
            assert len(looked) <= 6, looked  # three that were named, and for each another

    asyncio.run(main())


def test_many_jobs_wake_as_many_as_have_room_for_them(
    apps: list[Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_calm(monkeypatch)
    begun: list[str] = []
    gate = asyncio.Event()
    producer, *consumers = [declare(app, begun, gate) for app in apps]

    async def main() -> None:
        async with resting(consumers, concurrency=2):
            await acquainted(producer)
            await producer.tasks["hold"].enqueue_many_async([(str(number),) for number in range(2 * WORKERS)])
            await until(lambda: set(map(str, range(2 * WORKERS))) <= set(begun), PROMPT)
            gate.set()

    asyncio.run(main())


def test_a_job_is_begun_a_moment_later_if_the_one_that_was_named_is_gone(
    apps: list[Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of a process that was killed: its row, for a while, and a channel on which there is no ear."""
    soon_calm(monkeypatch)
    begun: list[str] = []
    producer, consumer = [declare(app, begun) for app in apps[:2]]
    told = {"ear": "nowhere", "queues": "all", "concurrency": 100, "knows": marks(producer.task_names)}

    async def main() -> None:
        async with resting([consumer]) as (worker,):
            producer.database.in_transaction(
                processes.register, new_id(), "dead", 1, "all", None, dumps(told), 3600.0
            )
            await acquainted(producer)
            named = Counter[str]()
            plain = Fleet.name_for

            def noting(*args: object) -> object:
                found = plain(*args)  # type: ignore[arg-type]
                named.update(member.channel for member in found.now if found is not None)  # type: ignore[union-attr]
                return found

            monkeypatch.setattr(Fleet, "name_for", noting)
            for number in range(4):
                await at_rest(worker)
                await producer.tasks["note"].enqueue_async(str(number))
                await asyncio.wait_for(until(lambda number=number: str(number) in begun), PROMPT)  # type: ignore[misc]
            assert named["nowhere"], named

    asyncio.run(main())


def test_a_worker_without_room_passes_on_what_it_was_named_for(
    apps: list[Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_calm(monkeypatch)
    monkeypatch.setattr("penstock.runtime.pump.job_source.MOMENT", 3600.0)
    begun: list[str] = []
    gate = asyncio.Event()
    producer, *consumers = [declare(app, begun, gate) for app in apps[:3]]

    async def main() -> None:
        async with resting(consumers, concurrency=1) as workers:
            await acquainted(producer)
            await producer.tasks["hold"].enqueue_async("held")
            await until(lambda: "held" in begun, PROMPT)
            idle = next(worker for worker in workers if not worker.dispatcher.busy)
            for number in range(6):
                await at_rest(idle)
                await producer.tasks["note"].enqueue_async(str(number))
                await until(lambda number=number: str(number) in begun, PROMPT)  # type: ignore[misc]
            gate.set()

    asyncio.run(main())


def test_those_who_have_gone_are_not_waited_for(
    apps: list[Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are known to the producer, and their rows are gone: others are told instead."""
    soon_calm(monkeypatch)
    begun: list[str] = []
    producer, *consumers = [declare(app, begun) for app in apps[:4]]

    async def main() -> None:
        async with resting(consumers[:1]) as (stays,):
            async with resting(consumers[1:]):
                await acquainted(producer)
            for number in range(4):
                await at_rest(stays)
                await producer.tasks["note"].enqueue_async(str(number))
                await until(lambda number=number: str(number) in begun, PROMPT)  # type: ignore[misc]

    asyncio.run(main())


def test_work_goes_to_those_who_know_it_and_serve_its_queue(
    apps: list[Penstock], monkeypatch: pytest.MonkeyPatch
) -> None:
    soon_calm(monkeypatch)
    begun: list[str] = []
    producer, plain, mail, old = apps[:4]
    for app in (producer, plain, mail):
        declare(app, begun)

    @old.task(name="former")
    async def former() -> None: ...

    async def main() -> None:
        async with (
            resting([plain], queues="default") as (first,),
            resting([mail], queues="mail") as (second,),
            resting([old]),
        ):
            await acquainted(producer)
            for number, queue in enumerate(["mail", "default", "mail", "default"]):
                await at_rest(first)
                await at_rest(second)
                await producer.tasks["note"].options(queue=queue).enqueue_async(str(number))
                await until(lambda number=number: str(number) in begun, PROMPT)  # type: ignore[misc]

    asyncio.run(main())
