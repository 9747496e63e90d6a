"""Callers on an event loop, as in a web application: some have no patience and hang up in the middle of a call."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import PenstockError
from penstock.operate import actions
from tests.simulation import virtual
from tests.simulation.hosts import ClientHost
from tests.simulation.workloads import Act

if TYPE_CHECKING:
    from penstock.app import Penstock
    from penstock.reconcile.row_lock import RowLock
    from tests.simulation.story import Story

PATIENCE = (None, None, 0.0, 0.002, 0.01, 0.5, 2.0)
"""Seconds before a caller hangs up."""
GAPS = (0.0, 0.0, 0.1, 0.5, 2.0)

Ids = dict[int, str]
"""The jobs that were accepted, by their number."""
Call = Callable[[ClientHost], Coroutine[Any, Any, Any]]


def patiently(rng: random.Random, call: Call) -> Act:
    """Make this call, after a while, on the client's event loop; perhaps not to its end."""
    gap, patience = rng.choice(GAPS), rng.choice(PATIENCE)

    def act(client: ClientHost) -> None:
        client.world.sleep(gap)
        try:
            client.ask(call, patience)
        except (PenstockError, sqlite3.Error) as error:
            client.world.note(client.name, f"gave up: {error}")
        except Exception as error:
            if not client.app.database.is_outage(error):
                raise
            client.world.note(client.name, f"gave up: {type(error).__name__}")

    return act


def tidying(rng: random.Random) -> Act:
    """Remove what has been over for a while, some times."""
    gaps = [rng.choice([0.5, 2.0, 5.0]) for _ in range(rng.choice([1, 3]))]
    age = rng.choice([0.0, 1.0, 4.0])

    def act(client: ClientHost) -> None:
        for gap in gaps:
            client.world.sleep(gap)
            client.world.record("prunes", age)
            try:
                actions.prune(client.app.database, age)
            except PenstockError as error:
                client.world.note(client.name, f"gave up: {error}")

    return act


def lock(app: Penstock, model: Any, id: int, timeout: float) -> RowLock:
    """`app.lock()`, of which the checker knows."""
    asked = app.lock(model, id, timeout=timeout)
    virtual.here().locks.append(asked)
    return asked


@contextmanager
def locked(app: Penstock, model: Any, id: int, timeout: float) -> Iterator[Any]:
    """The same, and the checker is told when the caller is done with it."""
    asked = lock(app, model, id, timeout)
    try:
        with asked as connection:
            yield connection
    finally:
        virtual.here().record("lock over", asked.me, asked._announced)


def told_of_writers(connection: sqlite3.Connection, table: str) -> None:
    """The history hears who wants a row of this table."""
    connection.execute(
        f"CREATE TRIGGER {table}_wanted AFTER UPDATE OF lock_wanted_by ON {table} "
        f"BEGIN SELECT sim_log('wanted', '{table}', NEW.id, NEW.lock_wanted_by); END"
    )


def announced(story: Story, table: str) -> Iterator[str]:
    """No caller is to wait for one that has gone away, unless it could not say so."""
    wanted: dict[object, object] = {}
    for _, who, kind, *facts in story.history:
        if kind == "commit":
            wanted.update({row[3]: row[4] for row in facts[1] if row[1:3] == ("wanted", table)})
        elif kind == "lock over" and not facts[1] and facts[0] in wanted.values():
            yield f"{who}: {table} is kept for {facts[0]}, who is done with it"
    gone = {asked.me for asked in story.locks if not asked._announced}
    for id, me in story.rows(f"SELECT id, lock_wanted_by FROM {table} WHERE lock_wanted_by IS NOT NULL"):
        if me in gone:
            yield f"{table} {id} is kept for {me}, who has gone away"


def calling(
    rng: random.Random, verb: str, number: int, ids: Ids, kind: str = "", args: tuple[Any, ...] = ()
) -> Act:
    """Enqueue a job of that number, or do something about it."""
    if verb == "enqueue":
        key = f"block-{rng.randint(0, 2)}" if rng.random() < 0.3 else None
        return patiently(rng, _enqueue(kind, args, key, ids))
    return patiently(rng, _steer(verb, number, ids))


def _enqueue(kind: str, args: tuple[Any, ...], key: str | None, ids: Ids) -> Call:
    async def call(client: ClientHost) -> None:
        task = client.app.tasks[kind].options(key=key)
        client.world.record("asks", kind, args[0], key)
        job = await task.enqueue_async(*args)
        ids.setdefault(args[0], job.id)
        client.world.record("accepted", job.id, kind, key)

    return call


def _steer(verb: str, number: int, ids: Ids) -> Call:
    async def call(client: ClientHost) -> None:
        if number not in ids:
            return
        job = client.app.job(ids[number])
        match verb:
            case "cancel" | "retry":
                client.world.record(f"asks {verb}", job.id)
                answer = await (job.cancel_async() if verb == "cancel" else job.retry_async())
                client.world.record(f"{verb} answered", job.id, answer)
            case "discard":
                await job.discard_async()
            case "result":
                await job.result_async(timeout=3)
            case "bury":
                await (await client.app.dead_letters_async()).discard_async()
            case "raise":
                await (await client.app.dead_letters_async()).retry_async()

    return call
