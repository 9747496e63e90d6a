"""database/user/connections: Transactional enqueue on Django's connection."""

from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

pytest.importorskip("django", reason="Django is not installed")

import django
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.engine import make_url

from penstock import Penstock
from penstock.testing import drain
from tests.conformance.faults import failing_at
from tests.conformance.rows import count
from tests.conformance.user_connections.test_connections_runs import sending

pymysql.install_as_MySQLdb()
ENGINES = {"postgresql": "postgresql", "mysql": "mysql", "sqlite": "sqlite3"}


@pytest.fixture
def connection(database_url: str) -> Iterator[Any]:
    """Django's connection to the test's database, under an alias of its own."""
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    url = make_url(database_url)
    connections.databases["default"] = connections.databases["shop"] = {
        "ENGINE": f"django.db.backends.{ENGINES[url.get_backend_name()]}",
        "NAME": url.database,
        "HOST": url.host or "",
        "PORT": url.port or "",
        "USER": url.username or "",
        "PASSWORD": url.password or "",
        "ATOMIC_REQUESTS": False,
        "AUTOCOMMIT": True,
        "CONN_MAX_AGE": 0,
        "CONN_HEALTH_CHECKS": False,
        "OPTIONS": {},
        "TIME_ZONE": None,
        "TEST": {},
    }
    yield connections["shop"]
    connections["shop"].close()
    del connections["shop"]


def test_a_job_is_there_if_and_only_if_the_atomic_block_commits(
    connection: Any, database_url: str, app_on: Callable[..., Penstock]
) -> None:
    app = app_on(database_url)

    @app.task
    def send(order: int) -> int:
        return order * 2

    app.prepare()
    with transaction.atomic(using="shop"):
        send.options(connection=connection).enqueue(1)
        transaction.set_rollback(True, using="shop")
    assert count(app, "jobs") == 0
    with transaction.atomic(using="shop"):
        job = send.options(connection=connection).enqueue(2)
        keyed = send.options(connection=connection, key="a").enqueue(3)
        assert send.options(connection=connection, key="a").enqueue(4) == keyed
        send.options(connection=connection, delay=60).enqueue(5)
        send.options(connection=connection).enqueue_many([(6,), (7,)])
    assert drain(app) == 4
    assert (job.result(timeout=0), keyed.result(timeout=0)) == (4, 6)


def test_outside_an_atomic_block_it_is_whole_or_nothing(
    connection: Any, database_url: str, app_on: Callable[..., Penstock]
) -> None:
    app = app_on(database_url)

    @app.task
    def send(order: int) -> int:
        return order * 2

    app.prepare()
    bound = send.options(connection=connection, key="a")
    with failing_at("enqueue.3", RuntimeError()), pytest.raises(RuntimeError):
        bound.enqueue(1)
    assert (count(app, "job_keys"), count(app, "jobs")) == (0, 0)
    assert connection.get_autocommit()
    assert bound.enqueue(2).status == "available"
    assert connection.get_autocommit()
    assert drain(app) == 1


def test_a_run_with_a_key_is_there_if_and_only_if_the_atomic_block_commits(
    connection: Any, database_url: str, app_on: Callable[..., Penstock]
) -> None:
    app = app_on(database_url)
    bound = sending(app).options(connection=connection, key="a")
    with transaction.atomic(using="shop"):
        bound.trigger(1)
        transaction.set_rollback(True, using="shop")
    assert count(app, "runs") == 0
    with transaction.atomic(using="shop"):
        run = bound.trigger(2)
        assert bound.trigger(3) == run
    drain(app)
    assert run.result(timeout=0) == 4
    assert count(app, "runs") == 1
