"""values/fork_safety: a fork while another thread holds a lock of ours: in the child no thread holds it, and everything
works.

The test looks for the locks itself, in the app and in the modules of the package: a developer who adds one need not
name it.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from penstock import Penstock
from penstock.errors import ResultTimeout
from penstock.task import Task
from penstock.telemetry.events import JobsEnqueued
from penstock.telemetry.metrics import Metrics
from penstock.testing import drain
from tests.conformance.rows import count
from tests.conformance.worker.test_forked_apps import in_a_fork, use_every_door

LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition)


def locks_in(root: object) -> dict[str, Any]:
    """The locks in objects of ours, by the way that leads there."""
    found: dict[str, Any] = {}
    seen: set[int] = set()

    def walk(value: object, way: str) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, LOCKS):
            found[way] = value
        elif isinstance(value, dict):
            for key, item in list(value.items()):
                walk(item, f"{way}[{key!r}]")
        elif isinstance(value, list | tuple):
            for number, item in enumerate(value):
                walk(item, f"{way}[{number}]")
        elif type(value).__module__.startswith("penstock"):
            slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
            for name in {*getattr(value, "__dict__", ()), *slots} - {"_inherited"}:  # which is never used
                walk(getattr(value, name, None), f"{way}.{name}")

    walk(root, "app")
    for name, module in list(sys.modules.items()):
        if name.startswith("penstock") and not name.startswith("penstock.cli"):  # whose consoles are rich's
            for attribute, value in list(vars(module).items()):
                walk(value, f"{name}.{attribute}")
    return found


@contextmanager
def held_elsewhere(locks: Any) -> Iterator[None]:
    """Another thread holds these."""
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            held.set()
            let_go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(60)
    try:
        yield
    finally:
        let_go.set()
        thread.join()


@pytest.fixture
def double(app: Penstock) -> Task[[int], int]:
    @app.task(name="double")
    def double(number: int) -> int:
        return number * 2

    use_every_door(double)
    return double


def test_locks_that_another_thread_holds_are_free_in_the_child(
    app: Penstock, double: Task[[int], int]
) -> None:
    metrics = Metrics(app.events)
    pipeline = app.flow("p").start(double)
    app.metrics = metrics  # type: ignore[attr-defined]  # to be found
    locks = locks_in(app)
    assert len(locks) >= 8, locks

    def child() -> None:
        assert not [way for way, lock in locks_in(app).items() if not is_free(lock)]
        use_every_door(double)
        app.events.on(JobsEnqueued, print)
        assert pipeline.trigger(2).status == "running"
        assert "penstock_jobs_enqueued_total" in metrics.text()
        assert drain(app) == 7
        app.close()
        double.enqueue(1)

    # The thread that forks takes the lock of the gate itself, and so no other thread can have it at that moment.
    others = [lock for way, lock in locks.items() if ".fork_gate." not in way]
    with held_elsewhere(others):
        running = in_a_fork(child)
        assert not is_free(others[0]), "the fork has waited until they were let go"
        assert os.waitpid(running, 0)[1] == 0
    use_every_door(double)
    assert count(app, "jobs") == 3 + 3 + 1 + 1 + 3


def is_free(lock: Any) -> bool:
    taken = lock.acquire(blocking=False)
    if taken:
        lock.release()
    return bool(taken)


def test_a_property_that_another_thread_works_out(app: Penstock) -> None:
    """Python 3.11 holds a lock for all tasks meanwhile."""
    at_it, go_on = threading.Event(), threading.Event()

    class Slow:
        @classmethod
        def __get_pydantic_core_schema__(cls, _source: Any, handler: Callable[[Any], Any]) -> Any:
            at_it.set()
            assert go_on.wait(60)
            return handler(int)

    def slow(number: Slow) -> None: ...

    def quick(number: int) -> int:
        return number

    slow.__annotations__["number"] = Slow
    tasks: dict[str, Any] = {each.__name__: app.task(name=each.__name__)(each) for each in (slow, quick)}
    app.prepare()
    thread = threading.Thread(target=tasks["slow"].codec.build)
    thread.start()
    assert at_it.wait(60)
    running = in_a_fork(lambda: tasks["quick"].enqueue(1))
    try:
        assert os.waitpid(running, 0)[1] == 0
    finally:
        go_on.set()
        thread.join()
    assert count(app, "jobs") == 1


def test_a_transaction_that_another_thread_is_in(app: Penstock, double: Task[[int], int]) -> None:
    """It is the parent's to commit; the child has connections of its own."""
    inside, go_on = threading.Event(), threading.Event()

    def write() -> None:
        with app.database.transaction() as tx:
            tx.run("UPDATE {jobs} SET priority = 7")
            assert tx.rows("SELECT COUNT(*) FROM {jobs}") == [(3,)]
            inside.set()
            assert go_on.wait(60)

    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(60)

    def child() -> None:
        job = double.enqueue(4)
        with pytest.raises(ResultTimeout):
            asyncio.run(job.result_async(timeout=0))

    soon = threading.Timer(0.2, go_on.set)  # a SQLite file is not open while its process is forked
    soon.start()
    running = in_a_fork(child)
    thread.join()
    assert os.waitpid(running, 0)[1] == 0
    assert count(app, "jobs") == 4
    looked = app.database.read(lambda tx: tx.rows("SELECT COUNT(*) FROM {jobs} WHERE priority = 7"))
    assert looked == [(3,)]


def test_a_listener_and_a_sender_that_are_the_parents(app: Penstock, double: Task[[int], int]) -> None:
    """Threads do not come along: the child starts its own when it needs them."""

    def child() -> None:
        job = double.enqueue(5)
        done = threading.Thread(target=lambda: drain(app))
        done.start()
        assert job.result(timeout=30) == 10
        done.join()

    running = in_a_fork(child)
    assert os.waitpid(running, 0)[1] == 0


class Child:
    """A forked process that enqueues when it is told to."""

    def __init__(self, double: Task[[int], int]) -> None:
        self._heard, told = os.pipe()
        hears, self._tell = os.pipe()

        def act() -> None:
            while int(os.read(hears, 1)):
                double.enqueue(1)
                os.write(told, b"!")

        self._id = in_a_fork(act)

    def enqueue(self) -> None:
        os.write(self._tell, b"1")
        assert os.read(self._heard, 1)

    def end(self) -> None:
        os.write(self._tell, b"0")
        assert os.waitpid(self._id, 0)[1] == 0


def test_what_a_child_commits_stays_when_its_parent_closes(
    app: Penstock, double: Task[[int], int], make_app: Callable[..., Penstock]
) -> None:
    """On SQLite the child had no lock of its own: the parent, as the last one, removed the log it wrote to."""
    child = Child(double)
    child.enqueue()
    app.close()
    for _ in range(3):
        child.enqueue()
    assert count(make_app(), "jobs") == 3 + 4
    child.end()
    assert count(app, "jobs") == 3 + 4


def test_likewise_when_it_has_a_worker(
    app: Penstock, double: Task[[int], int], make_app: Callable[..., Penstock]
) -> None:
    """Whose threads keep their connections, and use them all the time."""

    async def main() -> Child:
        async with app.worker(queues="none"):
            child = await asyncio.to_thread(Child, double)
            await asyncio.to_thread(child.enqueue)
            await double.enqueue_async(1)
            return child

    child = asyncio.run(main())
    app.close()
    for _ in range(3):
        child.enqueue()
    child.end()
    assert count(make_app(), "jobs") == 3 + 5
    assert drain(app) == 8


def test_transactions_wait_for_a_fork_and_a_fork_for_them(
    app: Penstock, double: Task[[int], int], make_app: Callable[..., Penstock]
) -> None:
    """Forked again and again while several threads write: each child can write, and all of it stays."""
    over = threading.Event()
    written: list[int] = []

    def write() -> None:
        while not over.is_set():
            double.enqueue(1)
            written.append(1)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    children = [in_a_fork(lambda: double.enqueue_many([(1,), (2,)])) for _ in range(5)]
    over.set()
    for thread in threads:
        thread.join()
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 5
    app.close()
    assert count(make_app(), "jobs") == 3 + 5 * 2 + len(written)
