"""queue/wakeups, runtime/pump/lanes: Any role that may connect can notify: nothing that is heard ends a loop, stops
a claim or stays in memory.
"""

import asyncio
from collections.abc import Callable

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock import Penstock
from penstock.queue.wakeups import ENDED, READY
from penstock.reconcile.wakeup_subjects import ROWS
from penstock.runtime.pump.lanes import KEPT, KNOWN
from penstock.runtime.worker import Worker
from penstock.telemetry.events import TroubleBegan
from tests.conformance.claim.test_claims import jobs, source_on, sweep_no_more, take, write
from tests.conformance.embedded import beside_a_worker
from tests.waiting import until

PIECES = st.sampled_from(
    [
        "ready",
        "yours",
        "later",
        "chores",
        "rows",
        "table",
        "ended",
        "runs",
        "default",
        "3",
        "-7",
        "9" * 25,
        "x",
        "",
    ]
)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)
SAID = st.lists(
    st.tuples(
        st.integers(0, 3), st.one_of(TEXT, st.lists(st.one_of(PIECES, TEXT), max_size=6).map("\t".join))
    ),
    min_size=1,
    max_size=30,
)
KNOWN_POISON = [
    (0, "ready\tdefault\tgarbage"),
    (0, "ready\tdefault\t99999999999999999999"),
    (3, "yours\t9\tdefault\t2147483648"),
    (3, "yours\t0\tnothing\t5"),
    (3, "later\t0\tdefault\t-99"),
    (1, "rows\ttable\t"),
]


@pytest.fixture
def app(app_on: Callable[..., Penstock], postgres_url: str) -> Penstock:
    return app_on(postgres_url, sweep_interval=3600, result_poll_interval=3600)


def test_nothing_that_is_heard_stops_a_worker(app: Penstock, postgres_url: str) -> None:
    """Hypothesis brings other texts every time; some have to be among them always."""
    troubles: list[TroubleBegan] = []
    app.events.on(TroubleBegan, troubles.append)

    @app.task
    async def double(number: int) -> int:
        return number * 2

    async def main(worker: Worker) -> None:
        assert await (await double.enqueue_async(1)).result_async(30) == 2
        threads = [service.thread for service in worker.services]
        speaker = await psycopg.AsyncConnection.connect(postgres_url, autocommit=True)
        channels = [
            app.wakeups.channel_of(READY),
            app.wakeups.channel_of(ROWS),
            app.wakeups.channel_of(ENDED),
        ]
        channels.append(str(worker.channel))

        async def say(said: list[tuple[int, str]]) -> None:
            for channel, text in said:
                await speaker.execute("SELECT pg_notify(%s, %s)", [channels[channel], text])
            assert await (await double.enqueue_async(2)).result_async(30) == 4
            assert [service.thread for service in worker.services] == threads, "all of them still live"
            assert all(service.alive for service in worker.services)
            assert len(worker.source.lanes.floors) <= KNOWN

        await say(KNOWN_POISON)
        loop = asyncio.get_running_loop()

        @settings(max_examples=25, suppress_health_check=list(HealthCheck), database=None)
        @given(SAID)
        def fuzz(said: list[tuple[int, str]]) -> None:
            asyncio.run_coroutine_threadsafe(say(said), loop).result(60)

        await asyncio.to_thread(fuzz)
        await until(lambda: len(worker.source.lanes.floors) <= KEPT)
        await speaker.close()

    beside_a_worker(app, main)
    assert not troubles


def test_a_listener_that_fails_disturbs_no_other(make_app: Callable[..., Penstock]) -> None:
    app = make_app()
    heard: list[str] = []

    def fails(subject: str) -> None:
        raise RuntimeError(subject)

    app.wakeups.listen(fails)
    app.wakeups.listen(heard.append)
    app.wakeups.relay("ended")
    assert heard == ["ended"]


def test_lanes_that_were_are_not_asked_for(make_app: Callable[..., Penstock]) -> None:
    """A claim costs the same however many priorities there have been."""
    app = make_app()
    source = source_on(app)
    for start in range(0, 300, 50):
        write(app, *(jobs(1, priority=priority) for priority in range(start, start + 50)))
        found = 0
        for _ in range(10):
            found += len(take(app, source, 20))
            source.lanes.force_sweep()
        assert found == 50
    assert len(source.lanes.above_floor(10, {})) <= KEPT


def test_all_lanes_are_found_however_many_there_are(make_app: Callable[..., Penstock]) -> None:
    """Also behind those in which there is nothing for us."""
    app = make_app()
    source = source_on(app)
    write(app, *(jobs(1, priority=priority, task="unknown") for priority in range(100, 250)))
    write(app, *(jobs(1, queue, priority=priority) for queue in ("a", "z") for priority in range(100)))
    found = 0
    for _ in range(30):
        found += len(take(app, source, 20))
        source.lanes.force_sweep()
    assert found == 200


def test_a_lane_told_of_in_vain_is_asked_for_once(make_app: Callable[..., Penstock]) -> None:
    app = make_app()
    source = source_on(app)
    take(app, source, 10)
    sweep_no_more(source)
    for number in range(100):
        source.heard({f"ready\tqueue{number}\t{number}"})
    take(app, source, 10)
    take(app, source, 10)
    assert source.lanes.floors == {}
