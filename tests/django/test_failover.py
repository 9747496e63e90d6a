"""django/connections: a Django project under gunicorn and uvicorn, with a worker: its server is restarted, its
worker is killed.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Penstock
from tests.django.test_projects import ROOT, SHOP, needs_django_tasks, succeeded
from tests.forkserver import SHARED_MEMORY
from tests.integrations.servers import asked, served, told
from tests.servers.postgres import Postgres
from tests.waiting import eventually
from tests.workers import Workers

MANAGE = str(SHOP / "manage.py")
GUNICORN = ("-m", "gunicorn", "config.wsgi", "--bind", "127.0.0.1:0", "--threads", "4")
UVICORN = ("-m", "uvicorn", "config.asgi:application", "--port", "0")
MANY = 120
OPEN = "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'handlers'"


@needs_django_tasks
@pytest.mark.process
def test_all_jobs_succeed_after_the_server_was_restarted(
    postgres_server: Postgres,
    workers_on: Callable[[str], Workers],
    app_on: Callable[..., Penstock],
    tmp_path: Path,
) -> None:
    for needed in ("gunicorn", "uvicorn"):
        pytest.importorskip(needed)
    url = postgres_server.create_database("shop")
    succeeded([MANAGE, "migrate", "--verbosity", "0"], tmp_path, SHOP, url)
    workers, app = workers_on(url), app_on(url)
    # Kept for long, and never looked at by Django: the server's restart is found out by using them.
    env = {"CONN_MAX_AGE": "600", "PGAPPNAME": "handlers", "DATABASE_URL": url}
    path = os.pathsep.join([str(SHOP), str(ROOT)])
    workers.python(MANAGE, "penstock", "worker", env=env | {"PYTHONPATH": path})
    gunicorn, uvicorn = (served(workers, *server, home=SHOP)[1] for server in (GUNICORN, UVICORN))

    def buy() -> list[str]:
        """Have jobs of all kinds enqueued, through both servers; their ids."""
        paths = [
            f"{server}/{view}?item=tea" for server in (gunicorn, uvicorn) for view in ("buy", "buy-async")
        ]
        return [told(path)["job"] for path in paths]

    def all_at_once() -> list[str]:
        """Many jobs beside each other, so that many threads of the worker have a connection."""
        order = told(f"{gunicorn}/buy?item=tea")["order"]
        ships = app.task(name="shop.tasks.ship")(_ship).enqueue_many([(order,)] * MANY)
        return [job.id for job in ships]

    def succeed(ids: list[str]) -> None:
        for id in ids:
            assert "tea" in str(app.job(id).result(timeout=90))
            assert [attempt.outcome for attempt in app.job(id).attempts()] == ["succeeded"]

    def kept() -> int:
        with app.database.reading() as tx:
            row = tx.row(OPEN)
        return int(row[0]) if row else 0

    for server in (gunicorn, uvicorn):
        assert asked(f"{server}/jobs/", headers={"accept": "text/html"})[1].count("/admin/login/") >= 1
    succeed([*buy(), *all_at_once()])
    eventually(lambda: 1 <= kept() <= 5)
    for _ in range(2):
        postgres_server.restart()
        eventually(lambda: app.job(told(f"{gunicorn}/buy?item=tea")["job"]).result(timeout=90))
        succeed([*buy(), *all_at_once(), *buy()])
    eventually(lambda: kept() <= 5)


def _ship(order_id: int) -> str:
    raise AssertionError("this process enqueues only")


def _count() -> int:
    raise AssertionError("this process enqueues only")


WORK = """
from tests.django.contract import tasks
print(tasks.wait_for.enqueue({file!r}).id)
"""
LOOK = """
from tests.django.contract import tasks
result = tasks.wait_for.get_result({id!r})
print(result.status, result.attempts, len(set(result.worker_ids)), result.is_finished)
"""
SET_UP = "import django; django.setup()\n"


@needs_django_tasks
@pytest.mark.process
@pytest.mark.one_database
def test_a_task_of_a_dead_worker_is_run_again(
    database_url: str, workers_on: Callable[[str], Workers], app_on: Callable[..., Penstock], tmp_path: Path
) -> None:
    """Where other backends leave it RUNNING for ever."""
    env = {"DJANGO_SETTINGS_MODULE": "tests.django.contract.settings", "DATABASE_URL": database_url}
    env |= {SHARED_MEMORY: str(tmp_path)}  # the second worker learns at once that the first is dead
    file = tmp_path / "go"

    def ask(script: str) -> str:
        return succeeded(["-c", SET_UP + script], tmp_path, ROOT, database_url, env).strip()

    succeeded(["-m", "django", "migrate", "--verbosity", "0"], tmp_path, ROOT, database_url, env)
    workers, app = workers_on(database_url), app_on(database_url)
    worker = workers.python("-m", "penstock", "worker", "penstock.django:app", "--processes", "0", env=env)
    id = ask(WORK.format(file=str(file)))
    eventually(lambda: app.job(id).status == "running", timeout=60)
    assert ask(LOOK.format(id=id)) == "RUNNING 1 1 False"
    worker.kill()
    file.touch()
    workers.python("-m", "penstock", "worker", "penstock.django:app", "--processes", "0", env=env)
    eventually(lambda: app.job(id).status == "succeeded", timeout=90)
    assert ask(LOOK.format(id=id)) == "SUCCESSFUL 2 2 True"
    count = app.task(name="tests.django.contract.tasks.count_users", retries=0)(_count)
    assert count.enqueue().result(timeout=90) == 0, "and a process for handlers sets Django up by itself"
