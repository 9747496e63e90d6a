"""runtime/liveness/housekeeping, schedules/fire: Ticks come on time: the housekeeping knows when one is due, and no
round is waited for.
"""

from collections.abc import Callable
from typing import Any

from penstock import Penstock
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.waiting import until

ROUNDS = {"housekeeping_interval": 3600, "poll_interval": 0.05}
"""A worker that waited for the next round would wait for ever."""
SOON = 60.0
AppOn = Callable[..., Penstock]


def declare(app: Penstock) -> Any:
    @app.task(name="note")
    async def note() -> None: ...

    app.prepare()
    return note


def test_declared_and_made_later(make_app: AppOn) -> None:
    app = make_app(**ROUNDS)
    note = declare(app)
    declared = note.schedule(every=0.4, name="declared")

    async def main(worker: Worker) -> None:
        await until(lambda: len(declared.ticks()) >= 3, SOON)
        made = await app.schedules.create_async(note, every=0.3, name="made")
        await until(lambda: len(made.ticks()) >= 3, SOON)
        await made.pause_async()
        await made.resume_async()
        seen = len([tick for tick in made.ticks() if tick.outcome == "fired"])
        await until(lambda: len([tick for tick in made.ticks() if tick.outcome == "fired"]) > seen, SOON)
        ticks = declared.ticks(limit=1000)
        assert {tick.outcome for tick in ticks} == {"fired"}
        assert len({tick.nominal for tick in ticks}) == len(ticks)

    beside_a_worker(app, main)


def test_what_waits_fires_when_the_one_before_has_ended(make_app: AppOn) -> None:
    app = make_app(**ROUNDS)
    running: list[int] = []
    most: list[int] = []

    @app.task(name="slow")
    async def slow() -> None:
        running.append(1)
        most.append(len(running))
        await until(lambda: len(app.schedule("s").ticks()) >= 2 * len(most), SOON)
        running.pop()

    slow.schedule(every=0.3, name="s", overlap="queue")

    async def main(worker: Worker) -> None:
        await until(lambda: len(most) >= 3, SOON)

    beside_a_worker(app, main)
    assert max(most) == 1


def test_another_process_is_told_of_a_new_one(app_on: AppOn, postgres_url: str) -> None:
    client, consumer = (app_on(postgres_url, **ROUNDS) for _ in range(2))
    note = declare(client)
    declare(consumer)

    async def main(worker: Worker) -> None:
        s = await client.schedules.create_async(note, every=0.3, name="made")
        await until(lambda: len(s.ticks()) >= 2, SOON)

    beside_a_worker(consumer, main)
