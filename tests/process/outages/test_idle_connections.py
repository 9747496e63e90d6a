"""runtime/service: a server that ends connections which are not used for a while: they are opened again, and that is
no trouble.
"""

import asyncio
from collections.abc import Callable
from contextlib import closing

import psycopg
import pymysql
import pytest
from sqlalchemy import make_url

from penstock import Penstock
from penstock.runtime.service import Service, Turn
from penstock.runtime.worker import Worker
from penstock.telemetry.events import Event, Stream, TroubleBegan, TroubleEnded
from tests.conformance.embedded import beside_a_worker
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres

pytestmark = pytest.mark.process

AppOn = Callable[..., Penstock]


def short_lived(server: Mariadb | Postgres) -> str:
    """The URL of a database whose connections live for a second when they are not used."""
    url = server.create_database("shop")
    where = make_url(url)
    if isinstance(server, Postgres):
        with psycopg.connect(server.url("postgres"), autocommit=True) as own:
            own.execute("ALTER SYSTEM SET idle_session_timeout = 1000")
            own.execute("SELECT pg_reload_conf()")
    else:
        with closing(pymysql.connect(host=where.host, port=where.port or 0, user=where.username)) as admin:
            admin.cursor().execute("SET GLOBAL wait_timeout = 1")
    return url


@pytest.mark.parametrize("kind", ["postgres", "mariadb"])
def test_it_is_no_trouble(app_on: AppOn, request: pytest.FixtureRequest, kind: str) -> None:
    url = short_lived(request.getfixturevalue(f"{kind}_server"))
    app = app_on(url, poll_interval=2, housekeeping_interval=3, heartbeat_interval=2, listen=False)
    heard: list[Event] = []
    app.events.on(TroubleBegan, heard.append)

    @app.task
    def double(number: int) -> int:
        return number * 2

    async def main(_: Worker) -> None:
        for number in range(2):
            await asyncio.sleep(2.2)  # longer than a connection lives
            assert await (await double.enqueue_async(number)).result_async(timeout=30) == number * 2

    beside_a_worker(app, main)
    assert heard == []


class Losing(Service):
    """A loop whose turns fail as often as it is told."""

    name = "test"

    def __init__(self, stream: Stream, failures: list[Exception]) -> None:
        super().__init__(stream)
        self.failures = failures

    def turn(self) -> Turn:
        if self.failures:
            raise self.failures.pop()
        return Turn.IDLE


DEADLOCK = pymysql.err.OperationalError(1213, "Deadlock found")


@pytest.mark.parametrize(
    ("failures", "told"),
    [([DEADLOCK], 0), ([DEADLOCK, DEADLOCK], 1), ([ValueError("a mistake")], 1), ([DEADLOCK] * 4, 1)],
)
def test_what_is_tried_again_at_once_is_no_trouble(failures: list[Exception], told: int) -> None:
    stream, heard = Stream(), list[Event]()
    stream.on(TroubleBegan, heard.append)
    stream.on(TroubleEnded, heard.append)
    loop = Losing(stream, list(failures))
    for _ in range(len(failures) + 1):
        loop.guarded_turn()
    assert len(heard) == told * 2
