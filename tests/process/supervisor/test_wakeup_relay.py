"""runtime/supervisor/wakeup_relay: nothing is missed when a part of the relay is killed or frozen.

The children are at rest, and their next idle check is an hour away where it is not said otherwise: a job that begins
was heard of.
"""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import psycopg
import pytest

from penstock import Penstock
from penstock.task import Task
from tests.process.conftest import alive
from tests.waiting import eventually
from tests.workers import WorkerProcess, Workers

pytestmark = pytest.mark.process

CHILDREN = 3
PROMPT = 40.0
MODULE = """
from penstock import Penstock
from penstock.runtime.pump import idle

idle.CALM, idle.INTERVAL, idle.ECHO, idle.DOUBT = 0.3, {interval}, {echo}, 5.0
app = Penstock(reap_after={reap_after})


@app.task(name="double")
async def double(number: int) -> int:
    return number * 2
"""
LISTENING = """
SELECT pid FROM pg_stat_activity WHERE application_name = 'penstock-listen' AND datname = current_database()
"""
WORKERS = "SELECT count(*) FROM penstock_processes WHERE role <> 'supervisor'"
QUIET = """
SELECT coalesce(max(state_change) < clock_timestamp() - interval '1.5 s', false) FROM pg_stat_activity
WHERE application_name = 'penstock' AND datname = current_database()
"""
"""A process that is not at rest asks at least once a second."""
CHANNELS = "SELECT CAST(details AS json) ->> 'ear' FROM penstock_processes WHERE role <> 'supervisor'"


@dataclass
class Scene:
    """A supervisor with its children, a producer, and a look at the server."""

    double: Task[[int], int]
    workers: Workers
    server: psycopg.Connection

    def start(self, interval: float = 3600.0, echo: float = 20.0) -> WorkerProcess:
        reap_after = max(30.0, 2 * interval)
        text = MODULE.format(interval=interval, echo=echo, reap_after=reap_after)
        worker = self.workers("--processes", str(CHILDREN), module=text)
        eventually(lambda: self.ask(WORKERS) == [CHILDREN], PROMPT)
        eventually(lambda: len(self.ask(LISTENING)) == 1, PROMPT)
        return worker

    def ask(self, query: str) -> list[object]:
        return [row[0] for row in self.server.execute(query.encode()).fetchall()]

    def at_rest(self) -> None:
        eventually(lambda: self.ask(QUIET) == [True], PROMPT, pause=0.2)

    def work(self, number: int) -> None:
        """A job gets its result, long before anything but a wake-up could have brought it."""
        assert self.double.enqueue(number).result(timeout=PROMPT) == 2 * number

    def work_for_all(self) -> None:
        """More jobs than two children have room for: all are told."""
        jobs = self.double.enqueue_many([(number,) for number in range(100 * CHILDREN)])
        assert jobs[-1].result(timeout=PROMPT) == 2 * (100 * CHILDREN - 1)


@pytest.fixture
def scene(
    app_on: Callable[..., Penstock], postgres_url: str, workers_on: Callable[[str], Workers]
) -> Iterator[Scene]:
    """The producer does not listen: it asks for its results, and is not counted among those that do."""
    producer = app_on(postgres_url, listen=False)

    @producer.task(name="double")
    def double(number: int) -> int: ...  # type: ignore[empty-body]

    with psycopg.connect(postgres_url, autocommit=True) as server:
        yield Scene(double, workers_on(postgres_url), server)


def test_one_session_listens_for_all_children(scene: Scene) -> None:
    scene.start()
    for number in range(2 * CHILDREN):
        scene.at_rest()
        scene.work(number)
    assert len(scene.ask(LISTENING)) == 1


def test_the_listening_connection_is_lost(scene: Scene) -> None:
    """The children are told, look by themselves, and are at rest again when there is another."""
    scene.start()
    scene.at_rest()
    (before,) = scene.ask(LISTENING)
    scene.server.execute("SELECT pg_terminate_backend(%s)", [before])
    scene.work(1)
    eventually(lambda: len(scene.ask(LISTENING)) == 1 and scene.ask(LISTENING) != [before], PROMPT)
    scene.at_rest()
    scene.work(2)


def test_a_child_is_killed(scene: Scene) -> None:
    """The pipe of the dead is given up; the child in its place hears by another."""
    worker = scene.start()
    for number in range(CHILDREN):
        scene.at_rest()
        before = set(worker.children())
        victim = min(before)
        os.kill(victim, signal.SIGKILL)
        scene.work(number)
        eventually(partial(_is_replaced, worker, before), PROMPT)
        eventually(lambda: scene.ask(WORKERS) == [CHILDREN], PROMPT)
    for number in range(2 * CHILDREN):
        scene.at_rest()
        scene.work(number)
    assert len(scene.ask(LISTENING)) == 1


def _is_replaced(worker: WorkerProcess, before: set[int]) -> bool:
    return len(set(worker.children()) - before) == 1


def test_the_supervisor_is_frozen(scene: Scene) -> None:
    """Its children hear nothing: an idle check finds the first job, and then they poll until it moves again."""
    worker = scene.start(interval=2.0, echo=0.5)
    scene.at_rest()
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        for number in range(5):
            scene.work(number)
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    scene.work(7)


def test_the_supervisor_is_killed(scene: Scene) -> None:
    """Its children stop. Those of another supervisor hear of the next job."""
    worker = scene.start()
    scene.at_rest()
    children = worker.children()
    os.kill(worker.pid, signal.SIGKILL)
    eventually(lambda: not any(alive(pid) for pid in children), PROMPT)
    scene.workers("--processes", str(CHILDREN), target="shop:app")
    scene.work(1)  # perhaps by a child that looked by itself, before there was anything to hear
    eventually(lambda: len(scene.ask(LISTENING)) == 1, PROMPT)


def test_a_child_that_does_not_read_keeps_nothing_from_the_others(scene: Scene) -> None:
    """More is said to all of them than a pipe holds. When the frozen one moves again, it looks for itself."""
    worker = scene.start()
    scene.at_rest()
    frozen = min(worker.children())
    os.kill(frozen, signal.SIGSTOP)
    try:
        for channel in scene.ask(CHANNELS):
            scene.server.execute(
                "SELECT pg_notify(%s, format(E'yours\\t0\\tnowhere %%s %%s\\t1', n, repeat('x', 150)))"
                " FROM generate_series(1, 2000) n",
                [channel],
            )
        for number in range(5):
            scene.work(number)
    finally:
        os.kill(frozen, signal.SIGCONT)
    for pid in set(worker.children()) - {frozen}:
        os.kill(pid, signal.SIGSTOP)
    try:
        scene.work_for_all()
        scene.at_rest()
        scene.work_for_all()
    finally:
        for pid in worker.children():
            os.kill(pid, signal.SIGCONT)


def test_what_is_said_may_be_anything(scene: Scene) -> None:
    """Some of it may be taken for the proof of a connection: then the children poll until they have another."""
    scene.start(echo=3.0)
    scene.at_rest()
    for text in ("x" * 7999, "", "\t\n", "é" * 3000, "+", "-", "ready\t\x01\t1", "'" * 900):
        for channel in scene.ask(CHANNELS):
            scene.server.execute("SELECT pg_notify(%s, %s)", [channel, text])
        scene.server.execute("SELECT pg_notify('penstock_wakeups_ready', %s)", [text])
    scene.work(1)
    scene.at_rest()
    scene.work(2)
