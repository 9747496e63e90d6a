"""database/user/connections: a connection that is closed, or that the server has ended, is gone: from memory, and
its descriptor with it.
"""

import asyncio
import gc
import os

import psycopg
import pytest

from penstock import Penstock
from penstock.runtime.worker import Worker
from tests.conformance.embedded import beside_a_worker
from tests.conformance.rows import rows

KILL_OTHERS = {
    "postgresql": (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    ),
    "mysql": (
        "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
    ),
}


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def connections() -> int:
    """Those of PostgreSQL that this process remembers, open or closed."""
    gc.collect()
    return sum(1 for one in gc.get_objects() if type(one).__mro__.count(psycopg.Connection))


def test_a_closed_connection_is_gone(app: Penstock) -> None:
    @app.task(name="note")
    def note(number: int) -> int:
        return number

    note.enqueue(0)
    app.close()
    remembered, opened = connections(), descriptors()
    for number in range(25):
        note.enqueue(number)
        app.close()
    assert connections() <= remembered + 1
    assert descriptors() <= opened + 1


@pytest.mark.process
def test_connections_that_the_server_ends_do_not_pile_up(app: Penstock) -> None:
    """A soak: all connections are ended again and again beside a worker, which goes on with few."""
    kind = app.database.dialect.name
    if kind == "sqlite":
        pytest.skip("there is no server that could end a connection")

    @app.task(name="note", retries=0)
    def note(number: int) -> int:
        return number

    async def main(_: Worker) -> None:
        seen: list[tuple[int, int]] = []
        for number in range(16):
            job = await note.enqueue_async(number)
            assert await job.result_async(60) == number
            await asyncio.to_thread(_end_connections, app, kind)
            if number % 5 == 0:
                seen.append((connections(), descriptors()))
        (first, opened), (last, still_open) = seen[0], seen[-1]
        assert last <= first + 8, seen
        assert still_open <= opened + 8, seen

    beside_a_worker(app, main)


def _end_connections(app: Penstock, kind: str) -> None:
    found = rows(app, KILL_OTHERS[kind])
    if kind == "mysql":
        for (id,) in found:
            try:
                rows(app, f"KILL {id}")
            except Exception:
                continue
