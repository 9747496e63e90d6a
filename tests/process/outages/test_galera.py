"""database/mysql, database/transaction: Two nodes of a Galera cluster, both written to: a row lock holds on one of
them, and only a write is seen by both.

Each test stops a transaction on one node right before its commit, when it has read and decided; does on the other node
what the first would have had to see; and lets the first go on.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, insert, select, update
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from penstock import Concurrency, Penstock, Reconcilable, current
from penstock.errors import ActionRefused, DatabaseUnavailable
from penstock.pipelines.maintenance import retention
from penstock.telemetry import fault_points
from penstock.telemetry.events import TroubleBegan
from tests.conformance.concurrent_workers import Turnstile, all_ended, held_slots, together
from tests.conformance.rows import count, rows
from tests.servers.galera import Galera
from tests.waiting import eventually

pytestmark = [pytest.mark.process, pytest.mark.slow]

LONGEST = 20.0


@pytest.fixture
def apps(galera: Galera, app_on: Callable[..., Penstock]) -> list[Penstock]:
    """An app on each node, of one database."""
    urls = galera.create_database(f"test_{uuid4().hex[:12]}")
    made = [app_on(url, poll_interval=0.02) for url in urls]
    made[0].migrate()
    return made


class Held:
    """The first transaction to come to a point, stopped there until it is let go."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.first = threading.Lock()
        self.came, self.goes = threading.Event(), threading.Event()

    def watch(self, point: str) -> None:
        if point == self.point and self.first.acquire(blocking=False):
            self.came.set()
            assert self.goes.wait(LONGEST), f"{point} was never let go"

    async def arrives(self) -> None:
        assert await asyncio.to_thread(self.came.wait, LONGEST), f"nothing came to {self.point}"


@contextmanager
def holding(point: str) -> Iterator[Held]:
    held = Held(point)
    with fault_points.watching(held.watch):
        try:
            yield held
        finally:
            held.goes.set()


def run(main: Callable[[], Any], *workers: Any) -> None:
    async def everything() -> None:
        async with AsyncExitStack() as stack, asyncio.timeout(60):
            for worker in workers:
                await stack.enter_async_context(worker)
            await main()

    asyncio.run(everything())


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONGEST):
        while not await asyncio.to_thread(is_so):  # noqa: ASYNC110 - what is looked at lies in the database
            await asyncio.sleep(0.02)


def test_a_limit_is_exact_whichever_node_admits(apps: list[Penstock]) -> None:
    inside, most = 0, 0
    trouble: list[TroubleBegan] = []
    for app in apps:
        app.events.on(TroubleBegan, trouble.append)

        @app.task(name="work", limits=[Concurrency(2)])
        async def work() -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.3)
            inside -= 1

    async def main() -> None:
        warm = await apps[0].tasks["work"].options(queue="a").enqueue_async()
        await warm.result_async(timeout=LONGEST)
        with holding("limits.commit") as first:
            await apps[0].tasks["work"].options(queue="a").enqueue_many_async([(), ()])
            await first.arrives()
            await apps[1].tasks["work"].options(queue="b").enqueue_many_async([(), ()])
            await until(lambda: count(apps[1], "slots") >= 2)
        await until(lambda: len(rows(apps[0], "SELECT 1 FROM {executions} WHERE outcome = 'succeeded'")) == 5)

    run(main, apps[0].worker(queues=["a"]), apps[1].worker(queues=["b"]))
    assert most == 2
    assert not trouble


def test_a_limit_on_runs_is_exact_whichever_node_admits(apps: list[Penstock]) -> None:
    for app in apps:
        tasks_and_pipelines(app)
        app.flow("limited", max_running=1).start(app.tasks["first"]).wait_for("go")

    async def main() -> None:
        with holding("admit.commit") as first:
            one = await apps[0].pipelines["limited"].trigger_async()
            await first.arrives()
            two = await apps[1].pipelines["limited"].trigger_async()
            admitted = asyncio.create_task(asyncio.to_thread(apps[1].engine.chores.admit_waiting))
            await until(lambda: len(rows(apps[1], "SELECT 1 FROM {run_places} WHERE admitted = true")) == 1)
        await admitted
        await until(lambda: sorted([one.status, two.status]) == ["pending", "running"])
        going, waiting = (one, two) if one.status == "running" else (two, one)
        await asyncio.to_thread(going.signal, "go", "yes")
        await until(lambda: waiting.status == "running")
        await asyncio.to_thread(waiting.signal, "go", "yes")
        await until(lambda: [one.status, two.status] == ["succeeded", "succeeded"])

    run(main, apps[0].worker())
    times = rows(apps[0], "SELECT started_at, ended_at FROM {runs} ORDER BY started_at")
    assert times[1][0] >= times[0][1]


def tasks_and_pipelines(app: Penstock) -> None:
    @app.task(name="first")
    async def first() -> int:
        return 1

    @app.task(name="fail", retries=0)
    async def fail() -> int:
        raise ValueError

    app.flow("single").start(app.tasks["first"])
    app.flow("approval").start(app.tasks["first"]).wait_for("go")
    app.flow("failing").start(app.tasks["fail"])


def test_a_signal_is_given_on_one_node_while_the_wait_begins_on_another(apps: list[Penstock]) -> None:
    for app in apps:
        tasks_and_pipelines(app)

    async def main() -> None:
        with holding("advance.commit") as begins_to_wait:
            started = await apps[0].pipelines["approval"].trigger_async()
            await begins_to_wait.arrives()
            await asyncio.to_thread(apps[1].run(started.id).signal, "go", "yes")
            await until(lambda: count(apps[1], "timers") == 0)
        await until(lambda: started.status == "succeeded")

    run(main, apps[0].worker())


def test_a_run_follows_one_that_ends_at_this_moment_on_another_node(apps: list[Penstock]) -> None:
    for app in apps:
        tasks_and_pipelines(app)

    async def main() -> None:
        with holding("advance.commit") as ends:
            upstream = await apps[0].pipelines["single"].trigger_async()
            await ends.arrives()
            follower = await asyncio.to_thread(apps[1].run(upstream.id).then, apps[1].pipelines["single"])
            await until(lambda: count(apps[1], "timers") == 0)
        await until(lambda: follower.status == "succeeded")

    run(main, apps[0].worker(), apps[1].worker(queues=["none"]))


def test_a_run_is_resumed_while_its_step_is_put_aside_on_another_node(apps: list[Penstock]) -> None:
    for app in apps:
        tasks_and_pipelines(app)

    async def main() -> None:
        started = await apps[0].pipelines["single"].trigger_async()
        await asyncio.to_thread(started.pause)
        with holding("hydrate.commit") as puts_aside:
            async with apps[0].worker():
                await puts_aside.arrives()
                await asyncio.to_thread(apps[1].run(started.id).resume)
                await until(lambda: count(apps[1], "timers") == 0)
                puts_aside.goes.set()
                await until(lambda: started.status == "succeeded")

    run(main)


def test_a_run_is_revived_while_it_is_pruned_on_another_node(apps: list[Penstock]) -> None:
    for app in apps:
        tasks_and_pipelines(app)

    async def main() -> None:
        async with apps[0].worker():
            old = await apps[0].pipelines["failing"].trigger_async()
            await until(lambda: old.status == "halted")
        with holding("prune_runs.commit") as prunes:
            pruned = asyncio.create_task(
                asyncio.to_thread(apps[0].database.in_transaction, retention.prune, 0.0)
            )
            await prunes.arrives()
            new = await asyncio.to_thread(apps[1].run(old.id).revive)
        await pruned
        there = {str(id) for (id,) in rows(apps[1], "SELECT id FROM {runs}")}
        assert {old.id, new.id} <= there, "what was revived rests on the run that it continues"

    run(main)


def test_a_run_is_not_moved_where_nothing_would_hold_it_still(apps: list[Penstock]) -> None:
    tasks_and_pipelines(apps[0])
    started = apps[0].pipelines["single"].trigger()
    with pytest.raises(ActionRefused, match="several writers"):
        started.migrate()


class Base(DeclarativeBase):
    pass


class Account(Base, Reconcilable):
    __tablename__ = "accounts"
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    balance: Mapped[int]


def test_of_two_who_lock_a_row_on_two_nodes_the_second_is_rolled_back(apps: list[Penstock]) -> None:
    Base.metadata.create_all(apps[0].database.engine)
    with apps[0].database.engine.begin() as connection:
        connection.execute(insert(Account).values(id=1, balance=0))

    def add_one(connection: Connection) -> None:
        before = connection.execute(select(Account.balance)).scalar_one()
        connection.execute(update(Account).values(balance=before + 1))

    slow = apps[0].lock(Account, 1)
    add_one(slow.__enter__())
    with apps[1].lock(Account, 1) as quick:
        add_one(quick)
    with pytest.raises(DatabaseUnavailable, match="do it again"):
        slow.__exit__(None, None, None)
    with apps[1].lock(Account, 1) as connection:
        assert connection.execute(select(Account.balance)).scalar_one() == 1


def test_a_limit_that_both_nodes_want_all_the_time_is_exact_and_no_trouble(apps: list[Penstock]) -> None:
    gate = Turnstile()
    trouble: list[TroubleBegan] = []
    for app in apps:
        app.events.on(TroubleBegan, trouble.append)

        @app.task(name="work", limits=[Concurrency(3)])
        async def work(number: int) -> None:
            with gate.passing("work", number=number):
                await asyncio.sleep(0.002 * (number % 4))

    async def main() -> None:
        await apps[0].tasks["work"].enqueue_many_async([(number,) for number in range(100)])
        await all_ended(apps[0])

    together(apps, main)
    assert gate.most["work"] <= 3
    assert sorted(number for _, number in gate.passed) == list(range(100))
    assert (held_slots(apps[0]), count(apps[0], "parked"), count(apps[0], "claims")) == (0, 0, 0)
    assert not trouble


def test_a_handler_whose_statement_another_node_undoes_spends_no_retry(apps: list[Penstock]) -> None:
    Base.metadata.create_all(apps[0].database.engine)
    with apps[0].database.engine.begin() as connection:
        connection.execute(insert(Account).values(id=1, balance=0))
    add_one = update(Account).values(balance=Account.balance + 1)
    attempts = 0

    @apps[0].task(retries=0)
    def pay() -> None:
        nonlocal attempts
        attempts += 1
        with current().transaction() as ours:
            ours.execute(add_one)
            if attempts == 1:
                with apps[1].database.engine.begin() as theirs:
                    theirs.execute(add_one)
            ours.execute(select(Account.balance))

    async def main() -> None:
        job = await pay.enqueue_async()
        await job.result_async(timeout=LONGEST)

    run(main, apps[0].worker())
    with apps[1].database.engine.begin() as connection:
        assert connection.execute(select(Account.balance)).scalar_one() == 2
    assert attempts == 2


def test_what_could_not_be_rolled_back_is_not_committed_later(apps: list[Penstock], galera: Galera) -> None:
    """A node without a majority refuses everything, also ROLLBACK. Half of a transaction must not stay behind."""
    app, (here, there) = apps[0], galera.nodes

    @app.task(name="note")
    def note() -> None: ...

    app.database.connections.go_through_sqlalchemy()
    note.enqueue()
    with holding("enqueue.3") as half_done, ThreadPoolExecutor(1) as pool:
        first = pool.submit(note.options(key="once").enqueue)
        assert half_done.came.wait(LONGEST)
        there.freeze()
        try:
            eventually(lambda: not here.takes_part(), LONGEST)
            half_done.goes.set()
            with pytest.raises(DatabaseUnavailable):
                first.result(LONGEST)
        finally:
            there.thaw()
    eventually(lambda: here.takes_part() and there.takes_part(), 60)
    again = note.options(key="once").enqueue()
    assert str(again.id) in {str(id) for (id,) in rows(app, "SELECT id FROM {jobs}")}
