"""schedules/fire: One schedule over many hosts: clocks an hour apart, hosts killed, the server restarted. Each tick
once, in time.
"""

import itertools
import os
from collections.abc import Callable
from signal import SIGKILL
from statistics import median
from typing import Any

import pytest

from penstock import Penstock
from tests.process.kills.test_clock_skew import SKEW
from tests.servers.keeper import cheap_url
from tests.servers.server import Server
from tests.waiting import eventually
from tests.workers import Workers

pytestmark = [pytest.mark.process, pytest.mark.slow]

MODULE = """
import os

from penstock import Penstock

app = Penstock(os.environ["PENSTOCK_DATABASE_URL"], heartbeat_interval=0.2, reap_after=2)


@app.task(name="tick")
def tick() -> None: ...


tick.schedule(every=1, name="every second", missed="all")
"""
IDLE = """
from penstock import Penstock

app = Penstock()


@app.task(name="tick")
async def tick() -> None: ...


tick.schedule(every=1, name="every second")
"""
"""As it is in production: every interval has its default."""
BEGAN = """
SELECT t.lateness, e.started_at - t.nominal_at FROM {schedule_ticks} t JOIN {executions} e ON e.job_id = t.target_id
ORDER BY t.nominal_at
"""
ON_TIME = 1.0
SKEWS = ("3600", "-3600", "0", "1800", "-7200")
TICKS = int(os.environ.get("TEST_TICKS", "9"))
"""One a second. `TEST_TICKS=60` is the long form."""
SETTLED = 120.0
FOR = "SELECT id, options FROM {jobs} WHERE task = 'tick'"


def watched(url: str) -> tuple[Penstock, Any]:
    """The same app in the test, which runs no worker."""
    app = Penstock(url)
    app.migrate()
    return app, app.schedule("every second")


def ticks_of(schedule: Any) -> list[Any]:
    try:
        return list(schedule.ticks(limit=10_000))
    except Exception:
        return []  # no worker has declared it yet, or the server is away


def demand_each_once(app: Penstock, schedule: Any) -> None:
    ticks = ticks_of(schedule)
    assert {tick.outcome for tick in ticks} == {"fired"}
    times = sorted(tick.nominal for tick in ticks)
    assert {(later - earlier).total_seconds() for earlier, later in itertools.pairwise(times)} == {1.0}
    jobs = app.database.read(lambda tx: tx.rows(FOR))
    assert len(jobs) == len(ticks) == len({options for _, options in jobs})
    assert {tick.job.id for tick in ticks} == {str(id) for id, _ in jobs}


def test_five_hosts_with_clocks_hours_apart(worker_process: Workers, database_url: str) -> None:
    app, schedule = watched(database_url)
    wanted = TICKS
    worker_process.write_module(SKEW, "sitecustomize")
    hosts = [
        worker_process("--processes", "0", module=MODULE, env={"PENSTOCK_TEST_SKEW": skew}) for skew in SKEWS
    ]
    eventually(lambda: len(ticks_of(schedule)) >= wanted // 3, SETTLED)
    hosts[0].send_all(SIGKILL)
    eventually(lambda: len(ticks_of(schedule)) >= wanted * 2 // 3, SETTLED)
    worker_process("--processes", "0", env={"PENSTOCK_TEST_SKEW": SKEWS[1]})
    eventually(lambda: len(ticks_of(schedule)) >= wanted, SETTLED)
    for host in hosts[1:]:
        assert host.stop() == 0
    worker_process.started[-1].stop()
    demand_each_once(app, schedule)
    app.close()


def test_a_tick_is_not_a_second_late_beside_an_idle_worker(
    worker_process: Workers, database_url: str
) -> None:
    app, _ = watched(database_url)
    host = worker_process("--processes", "0", module=IDLE)
    eventually(lambda: len(app.database.read(lambda tx: tx.rows(BEGAN))) >= 7, SETTLED)
    assert host.stop() == 0
    ticks = app.database.read(lambda tx: tx.rows(BEGAN))[1:]  # the worker was starting when the first was due
    fired, began = ([int(value) / 1_000_000 for value in each] for each in zip(*ticks, strict=True))
    # The median, for whatever else runs on the machine may hold up one or the other.
    assert median(fired) < ON_TIME, fired
    assert median(began) < ON_TIME, began
    app.close()


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_the_server_is_restarted_at_the_tick(
    request: pytest.FixtureRequest, workers_on: Callable[[str], Workers], kind: str
) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server")
    server.create_database("work")
    url = cheap_url(server, "work")
    app, schedule = watched(url)
    workers = workers_on(url)
    hosts = [workers("--processes", "0", module=MODULE) for _ in range(2)]
    for number in range(1, 3):
        eventually(lambda wanted=number * 3: len(ticks_of(schedule)) >= wanted, SETTLED)  # type: ignore[misc]
        server.restart(immediate=True)
    before = len(ticks_of(schedule))
    eventually(lambda: len(ticks_of(schedule)) >= before + 2, SETTLED)
    for host in hosts:
        assert host.stop() == 0
    demand_each_once(app, schedule)
    app.close()
