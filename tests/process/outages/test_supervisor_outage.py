"""runtime/supervisor/child_reaper: a supervisor and its children while the database is gone, and after."""

import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module

import pytest

from tests.process.conftest import Shop, alive
from tests.process.shop_source import SHOP
from tests.servers.postgres import Postgres
from tests.waiting import eventually, pass_time
from tests.workers import Workers

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.fixture
def shop(
    postgres_server: Postgres, workers_on: Callable[[str], Workers], monkeypatch: pytest.MonkeyPatch
) -> Shop:
    workers = workers_on(postgres_server.create_database("shop"))
    workers.write_module(SHOP)
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", workers.database_url)
    monkeypatch.syspath_prepend(str(workers.folder))
    sys.modules.pop("shop", None)
    found = Shop(import_module("shop"), workers)
    found.app.prepare()
    return found


def test_an_outage_longer_than_the_patience_spends_nothing(shop: Shop, postgres_server: Postgres) -> None:
    worker = shop.start(children=2)
    job = shop.hold()
    shop.begun(job)
    pids = sorted(row.pid for row in shop.workers())
    postgres_server.stop(immediate=True)
    eventually(lambda: worker.log.count("in trouble") >= 5)
    pass_time(5)  # longer than reap_after
    assert worker.running
    assert all(alive(pid) for pid in pids)
    postgres_server.start()
    eventually(lambda: "the keeper works again" in worker.log)
    shop.open_gate()
    assert job.result(timeout=30) == "done"
    assert shop.outcomes(job) == ["succeeded"]
    assert shop.spent(job) == (0, 0)
    assert sorted(row.pid for row in shop.workers()) == pids
    assert worker.log.count("the keeper is in trouble") == worker.log.count("the keeper works again") == 1


def test_a_supervisor_stops_while_the_database_is_away(shop: Shop, postgres_server: Postgres) -> None:
    worker = shop.start(children=1)
    postgres_server.stop(immediate=True)
    eventually(lambda: "in trouble" in worker.log)
    worker.send(signal.SIGTERM)
    worker.wait(40)
    postgres_server.start()
    assert not worker.running


def test_a_child_killed_during_an_outage_is_replaced_after_it(shop: Shop, postgres_server: Postgres) -> None:
    shop.start(children=1)
    job = shop.hold()
    shop.begun(job)
    victim = shop.holder_of(job)
    postgres_server.stop(immediate=True)
    os.kill(victim.pid, signal.SIGKILL)
    eventually(lambda: not alive(victim.pid))
    postgres_server.start()
    shop.begun(job, attempt=2)
    shop.open_gate()
    assert job.result(timeout=30) == "done"
    assert shop.outcomes(job) == ["crashed", "succeeded"]
