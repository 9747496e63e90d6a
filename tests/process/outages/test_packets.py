"""database/mysql: MySQL and MariaDB take no statement that is larger than max_allowed_packet: batches are as large
as they may be.
"""

from collections.abc import Callable
from contextlib import closing

import pymysql
import pytest
from sqlalchemy import make_url

from penstock import Penstock
from penstock.errors import SerializationError
from penstock.testing import drain
from tests.servers.mariadb import Mariadb

pytestmark = pytest.mark.process

PACKET = 64 * 1024


@pytest.fixture
def app(app_on: Callable[..., Penstock], mariadb_server: Mariadb) -> Penstock:
    where = make_url(mariadb_server.create_database("small"))
    with closing(pymysql.connect(host=where.host, port=where.port or 0, user=where.username)) as admin:
        admin.cursor().execute(f"SET GLOBAL max_allowed_packet = {PACKET}")
    app = app_on(mariadb_server.url("small"))

    @app.task(name="echo")
    def echo(words: str) -> str:
        return words

    return app


@pytest.mark.parametrize("words", ["y" * 20_000, '"' * 10_000, "\N{KEY}" * 5_000, ""])
def test_many_are_sent_in_parts(app: Penstock, words: str) -> None:
    """A batch of a megabyte was refused."""
    jobs = app.tasks["echo"].enqueue_many([(words,) for _ in range(700)])
    assert drain(app) == 700
    assert {job.result(timeout=0) for job in jobs[:5]} == {words}


def test_what_the_server_can_never_take_is_refused_by_name(app: Penstock) -> None:
    with pytest.raises(SerializationError, match="max_allowed_packet is 65,536"):
        app.tasks["echo"].enqueue("x" * 200_000)
    with pytest.raises(SerializationError, match="max_allowed_packet"):
        app.tasks["echo"].enqueue('"' * 30_000)  # each of which is escaped twice
    assert app.tasks["echo"].enqueue("x").status == "available"
