"""runtime/liveness/outage_guard: the database goes away under a thousand jobs. Invariant 11: an outage spends nothing.

all connections are cut, again and again
the server crashes and comes back
the server stays away for longer than it takes to be called dead
"""

import time
from collections.abc import Callable, Iterator

import pytest

from penstock import Penstock
from tests.process.history import check, done, rows, settled
from tests.process.programs import LIVELY, lines_with, start_worker
from tests.process.scenes import make_app
from tests.servers.keeper import cheap_url
from tests.servers.server import Server
from tests.waiting import eventually
from tests.workers import Workers

pytestmark = [pytest.mark.process, pytest.mark.slow]

LOOPS = 3
PATIENCE = float(LIVELY["PENSTOCK_REAP_AFTER"])


class Outages:
    """A server of our own, two workers on it, and much to do."""

    def __init__(self, server: Server, workers: Workers, app: Penstock) -> None:
        self.server = server
        self.app = app
        options = ("--processes", "0", "--concurrency", "20")
        self.workers = [start_worker(workers, *options) for _ in range(2)]
        eventually(lambda: len(rows(app, "SELECT id FROM {processes}")) == 2)

    def begin(self, jobs: int) -> None:
        before = done(self.app)
        self.app.tasks["linger"].enqueue_many([(number,) for number in range(jobs)])
        self.until_done(before + 100)

    def until_done(self, count: int) -> None:
        eventually(lambda: done(self.app) >= count, 60)

    def end(self, outages: int) -> None:
        """All is done, once; nothing was spent; and no process raised a false alarm."""
        settled(self.app)
        for worker in self.workers:
            assert worker.stop() == 0, worker.log
        jobs = check(self.app, every_claim_recorded=False)
        assert {job["status"] for job in jobs.values()} == {"succeeded"}
        spent = [job for job in jobs.values() if job["crash_count"] or job["retry_count"]]
        assert not spent, f"an outage spends nothing: {spent[:3]}"
        for worker in self.workers:
            began, ended = lines_with(worker, "is in trouble"), lines_with(worker, "works again")
            assert 0 < len(began) <= LOOPS * outages, f"trouble is said once for each loop: {began}"
            assert len(began) == len(ended), (began, ended)
            assert "Traceback" not in worker.log


@pytest.fixture(params=["postgres", "mariadb"])
def outages(request: pytest.FixtureRequest, workers_on: Callable[[str], Workers]) -> Iterator[Outages]:
    server: Server = request.getfixturevalue(f"{request.param}_server")
    server.create_database("work")
    url = cheap_url(server, "work")  # no client connects as often as one that is refused
    app = make_app(url)
    app.migrate()
    yield Outages(server, workers_on(url), app)
    app.close()


def test_the_database_goes_away_in_the_middle_of_a_thousand_jobs(outages: Outages) -> None:
    cuts = 5
    outages.begin(1_000)
    for cut in range(1, cuts + 1):
        assert outages.server.kill_connections() > 2
        outages.until_done(100 + cut * 100)
    settled(outages.app)

    outages.begin(1_000)
    outages.server.restart(immediate=True)
    settled(outages.app)

    outages.begin(200)
    outages.server.stop(immediate=True)
    back_at = time.monotonic() + 1.5 * PATIENCE
    eventually(lambda: time.monotonic() > back_at)
    outages.server.start()
    outages.end(outages=cuts + 2)
