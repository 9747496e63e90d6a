"""runtime/supervisor/worker_process: a worker that is stopped while the database does not answer ends all the same."""

import signal
from collections.abc import Iterator

import pytest
from sqlalchemy import make_url

from penstock.runtime.supervisor.worker_process import LAST_MOMENT
from tests.chaos.proxy import Network, Proxy
from tests.process.conftest import Shop

pytestmark = [pytest.mark.process, pytest.mark.slow]

SHUTDOWN = 1.0
OVERTIME = 1.0
FINAL_CLEANUP = 60.0
A_BUSY_MACHINE = 15.0
"""Without an end of its own each of these takes half a minute or more."""


@pytest.fixture
def way(database_url: str) -> Iterator[Proxy]:
    """The only way to the server that the worker has."""
    url = make_url(database_url)
    if url.port is None:
        pytest.skip("there is no server and no network")
    network = Network()
    proxy = Proxy(network, url.port)
    yield proxy
    proxy.close()
    network.close()


@pytest.mark.parametrize("children", [0, 1])
def test_a_stop_ends_although_nothing_is_heard_of_the_database(
    shop: Shop, way: Proxy, database_url: str, children: int
) -> None:
    there = make_url(database_url).set(host="127.0.0.1", port=way.port).render_as_string(hide_password=False)
    worker = shop.start(
        children=children,
        env={
            "PENSTOCK_DATABASE_URL": there,
            "PENSTOCK_TEST_OVERTIME": str(OVERTIME),
            "PENSTOCK_TEST_SHUTDOWN": str(SHUTDOWN),
            "PENSTOCK_TEST_LAST_RITES": str(FINAL_CLEANUP),
        },
    )
    job = shop.hold()
    shop.begun(job)
    way.block()
    worker.send(signal.SIGTERM)
    worker.wait(SHUTDOWN + OVERTIME + LAST_MOMENT + A_BUSY_MACHINE)
    way.unblock(reset=True)
    assert job.status == "running", "the database could not be told; others will find the process dead"
