"""What the processes do that kill tests kill: each scene is the whole life of a real process.

A scene passes the kernel's named points; `strike_at` says at which of them the process kills itself, `record`
names a file in which every point it passed is written down. Both count from where the scene is said to begin.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from signal import SIGKILL
from typing import Any

import penstock
from penstock import Penstock, Retry, Snooze
from penstock.telemetry import fault_points, logs
from penstock.values.status import JobStatus
from tests.conformance.faults import disconnected, failing_at
from tests.forkserver import live_at
from tests.process import ledger, run_plays
from tests.process.freezing import between_writes
from tests.servers.child import die_with_parent
from tests.waiting import eventually

QUICK = {
    "poll_interval": 0.05,
    "sweep_interval": 0.05,
    "housekeeping_interval": 0.02,
    "heartbeat_interval": 0.5,
}
HASTE: dict[str, dict[str, Any]] = {"reap": {"heartbeat_interval": 0.05}}
"""A newcomer waits two heartbeats before it judges."""
PATIENCE = 100.0
TERMINAL = tuple(status.value for status in JobStatus if status.terminal)
UNFINISHED = f"""
SELECT count(*) FROM {{jobs}} j JOIN {{job_states}} s ON s.job_id = j.id
WHERE s.status NOT IN {TERMINAL} AND (j.queue = :queue OR :queue = '')
"""


@dataclass(frozen=True)
class Part:
    """What a process is to play: its scene, on which database and queue, and where its life ends."""

    url: str
    scene: str
    queue: str = ""
    diary: str = os.devnull
    strike_at: str | None = None
    record: str | None = None
    log: str | None = None
    hearth: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)


def play(part: Part) -> None:
    """The life of a forked process."""
    die_with_parent(os.getppid(), SIGKILL)
    live_at(part.hearth)
    app = make_app(part.url, part.diary, part, **{**HASTE.get(part.scene, {}), **part.settings})
    if part.log is not None:
        logs.configure("info", "text", out=open(part.log, "a", buffering=1))  # noqa: SIM115 - for life
        logs.attach(app.events)
    SCENES[part.scene](app, part)
    app.close()


# The shop


def make_app(url: str, diary: str = os.devnull, part: Part | None = None, **settings: Any) -> Penstock:
    """An app whose tasks write into the diary every time they run."""
    app = Penstock(url, **{**QUICK, **settings})

    def note() -> None:
        job = penstock.current()
        with open(diary, "ab", buffering=0) as file:
            file.write(f"{job.id} {job.attempt} {os.getpid()}\n".encode())

    @app.task(name="double", retries=0)
    def double(number: int) -> int:
        note()
        return number * 2

    @app.task(name="double_async", retries=0)
    async def double_async(number: int) -> int:
        note()
        return number * 2

    @app.task(name="stumble", retries=Retry(max=1, delay=0.01))
    def stumble(number: int) -> int:
        note()
        if penstock.current().retry_count == 0:
            raise ValueError("the first time")
        return number * 2

    @app.task(name="stumble_on", retries=Retry(max=1, delay=0))
    async def stumble_on(number: int) -> int:
        note()
        raise ValueError("every time")

    @app.task(name="doze", retries=0)
    async def doze(number: int) -> Snooze | int:
        note()
        job = penstock.current()
        return Snooze(0.01) if job.attempt - job.crash_count == 1 else number * 2

    @app.task(name="who", retries=0)
    def who() -> int:
        note()
        return os.getpid()

    @app.task(name="linger", retries=0)
    async def linger(number: int) -> int:
        note()
        await asyncio.sleep(0.05)
        return number * 2

    @app.task(name="forever", retries=0)
    async def forever() -> None:
        note()
        await asyncio.Event().wait()

    @app.task(name="hang", retries=0)
    async def hang(number: int) -> int:
        """Runs until its process is gone, where the scene wants that; elsewhere it is quick."""
        note()
        if part is not None and part.scene == "stop":
            await asyncio.Event().wait()
        return number * 2

    ledger.declare(app)
    run_plays.declare(app, note, one_by_one=part is not None and part.scene == "advance")
    return app


def unfinished(app: Penstock, queue: str = "") -> int:
    return int(app.database.read(lambda tx: tx.rows(UNFINISHED, queue=queue))[0][0])


async def work_until_over(
    app: Penstock,
    queue: str = "",
    and_also: Callable[[], bool] = lambda: True,
    concurrency: int | None = 8,
) -> None:
    """A worker that stops, in order, when its queue has nothing unfinished."""
    async with app.worker(queues=queue or None, concurrency=concurrency):
        # In this order: what ends a run enqueues jobs with it.
        await asyncio.to_thread(eventually, lambda: and_also() and not unfinished(app, queue), PATIENCE)


# Scenes


@contextmanager
def beginning(app: Penstock, part: Part) -> Iterator[None]:
    """From here on points count."""
    watcher = _watcher(app, part)
    if watcher is None:
        yield
        return
    with fault_points.watching(watcher):
        yield


def _watcher(app: Penstock, part: Part) -> Callable[[str], None] | None:
    if part.strike_at:
        strike = fault_points.crasher(part.strike_at)
        stops = part.strike_at.endswith(":stop")
        return between_writes(app, strike, part.strike_at.partition(":")[0]) if stops else strike
    if part.record is None:
        return None
    file = os.open(part.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return lambda point: _write(file, point)


def _write(file: int, point: str) -> None:
    os.write(file, f"{point}\n".encode())


def work(app: Penstock, part: Part) -> None:
    """A worker from start to stop."""
    with beginning(app, part):
        asyncio.run(work_until_over(app, part.queue))


def advance(app: Penstock, part: Part) -> None:
    """A worker whose queue has the steps of runs; it stops when these have ended."""
    run_plays.hold_at_once()

    def over() -> bool:
        return not run_plays.unended(app, part.queue)

    with beginning(app, part):
        asyncio.run(work_until_over(app, part.queue, over, concurrency=None))


def fall_ill(app: Penstock, part: Part) -> None:
    """The same by a process that cannot begin any run."""
    run_plays.fall_ill()
    advance(app, part)


def serve(app: Penstock, part: Part) -> None:
    """A worker that goes on until the file `<diary>.end` is there."""

    async def live() -> None:
        async with app.worker(queues=part.queue or None):
            await asyncio.to_thread(eventually, lambda: os.path.exists(f"{part.diary}.end"), PATIENCE)

    with beginning(app, part):
        asyncio.run(live())


def stop(app: Penstock, part: Part) -> None:
    """A graceful stop while some jobs run and others wait for a place."""

    async def live() -> None:
        worker = app.worker(queues=part.queue, concurrency=2)
        await worker.start()
        await asyncio.to_thread(eventually, lambda: _running(part))
        with beginning(app, part):
            await worker.stop(timeout=0.05)

    asyncio.run(live())


def _running(part: Part) -> bool:
    with suppress(FileNotFoundError), open(part.diary) as file:
        return len(file.readlines()) >= 2
    return False


def hold(app: Penstock, part: Part) -> None:
    """A worker that is killed with work in its hands."""
    with fault_points.watching(fault_points.crasher("execute.after")):
        asyncio.run(work_until_over(app, part.queue))


def reap(app: Penstock, part: Part) -> None:
    """A worker with nothing to claim: it only looks after the dead, until none is left."""

    async def live() -> None:
        async with app.worker(queues="nothing"):
            await asyncio.to_thread(eventually, lambda: not _claims(app), PATIENCE)

    with beginning(app, part):
        asyncio.run(live())


def _claims(app: Penstock) -> int:
    return int(app.database.read(lambda tx: tx.rows("SELECT count(*) FROM {claims}"))[0][0])


def doubt(app: Penstock, part: Part) -> None:
    """A claim whose answer is lost on the way: it is found again and given back."""
    with failing_at("claim.committed", disconnected(app)), beginning(app, part):
        asyncio.run(work_until_over(app, part.queue))


def produce(app: Penstock, part: Part) -> None:
    """Enqueue in every way."""
    app.prepare()
    double = app.tasks["double"].options(queue=part.queue)
    with beginning(app, part):
        double.options(key=part.queue).enqueue(1)
        double.options(delay=0.01).enqueue(2)
        double.enqueue_many([(number,) for number in range(3, 8)])


def steer(app: Penstock, part: Part) -> None:
    """Cancel what waits, retry what is dead."""
    app.prepare()
    jobs = app.database.read(
        lambda tx: tx.rows("SELECT id, task FROM {jobs} WHERE queue = :q ORDER BY id", q=part.queue)
    )
    with beginning(app, part):
        for id, task in jobs:
            if task == "double":
                app.job(str(id)).cancel()
            else:
                app.job(str(id)).retry()


SCENES: dict[str, Callable[[Penstock, Part], None]] = {
    scene.__name__: scene
    for scene in (work, advance, fall_ill, serve, stop, hold, reap, doubt, produce, steer)
}
