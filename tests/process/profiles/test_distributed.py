"""database/postgres/distributed: the distributed profile, forced on PostgreSQL: what it never says, and a part of the
conformance suite.

The whole of it: `python -m pytest --profile distributed tests/conformance/{enqueue,claim,settle,reclaim,pipelines}`.
"""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from penstock import Concurrency, Penstock
from penstock.errors import ConfigurationError
from penstock.schema.version import LATEST
from penstock.telemetry.events import TroubleBegan
from tests.conformance.concurrent_workers import Turnstile, all_ended, together
from tests.conformance.rows import rows
from tests.servers.postgres import Postgres
from tests.workers import CHECKOUT

pytestmark = [pytest.mark.process, pytest.mark.slow]

AppOn = Callable[..., Penstock]

CHOSEN = (
    "claim/test_claims.py",
    "enqueue/test_keys.py",
    "settle/test_retries.py",
    "pipelines/runs/test_running.py",
    "pipelines/cancel/test_steering.py",
)
NEVER = re.compile(
    r"SKIP LOCKED|advisory|\b(?:pg_)?notify\b|\bLISTEN\b|\bctid\b|enable_seqscan|plan_cache_mode",
    re.IGNORECASE,
)


def test_a_part_of_the_conformance_suite_passes_with_it(postgres_url: str) -> None:
    """On the server of `postgres_url`: one more would take longer to start than these tests."""
    files = [str(CHECKOUT / "tests/conformance" / name) for name in CHOSEN]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--profile",
        "distributed",
        *files,
    ]
    environment = os.environ | {"TEST_POSTGRES_URL": postgres_url}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    assert re.search(r"\b\d{2,} passed", done.stdout)


def test_it_asks_for_nothing_that_others_lack(postgres_server: Postgres, app_on: AppOn) -> None:
    url = postgres_server.create_database("shop")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET log_statement = 'all'")
        connection.execute("SELECT pg_reload_conf()")
    app = app_on(url, profile="distributed", poll_interval=0.02)

    @app.task(limits=[Concurrency(2)])
    async def limited() -> None: ...

    @app.task
    async def numbers() -> list[int]:
        return [1, 2, 3]

    @app.task
    async def double(number: int) -> int:
        return 2 * number

    @app.pipeline
    def doubled() -> object:
        return double.map(numbers()).collect()

    async def main() -> None:
        await limited.options(delay=0.1).enqueue_async()
        run = await doubled.trigger_async()
        assert await run.result_async(timeout=30) == [2, 4, 6]
        await all_ended(app)

    together([app], main)
    said = (Path(postgres_server.folder) / "server.log").read_text()
    assert "BEGIN ISOLATION LEVEL SERIALIZABLE" in said
    assert sorted(set(NEVER.findall(said))) == []


def test_workers_that_get_in_each_others_way_run_everything_once(postgres_url: str, app_on: AppOn) -> None:
    apps = [app_on(postgres_url, profile="distributed", poll_interval=0.02) for _ in range(3)]
    gate = Turnstile()
    trouble: list[TroubleBegan] = []
    for app in apps:
        app.events.on(TroubleBegan, trouble.append)

        @app.task(name="work", limits=[Concurrency(4)])
        async def work(number: int) -> None:
            with gate.passing("work", number=number):
                await asyncio.sleep(0.001)

    async def main() -> None:
        await apps[0].tasks["work"].enqueue_many_async([(number,) for number in range(150)])
        await all_ended(apps[0])

    together(apps, main)
    assert sorted(number for _, number in gate.passed) == list(range(150))
    assert gate.most["work"] <= 4
    assert rows(apps[0], "SELECT DISTINCT generation FROM {job_states}") == [(1,)]
    assert not trouble


def test_many_make_the_tables_at_once(postgres_server: Postgres, app_on: AppOn) -> None:
    """No lock keeps them apart."""
    url = postgres_server.create_database("empty")
    apps = [app_on(url, profile="distributed") for _ in range(6)]
    together = threading.Barrier(len(apps))

    def make(app: Penstock) -> None:
        together.wait(10)
        app.migrate()

    with ThreadPoolExecutor(len(apps)) as pool:
        list(pool.map(make, apps))
    assert [app.migrate() for app in apps] == [0] * len(apps)
    assert len(rows(apps[0], "SELECT 1 FROM " + apps[0].database.qualified("schema_versions"))) == LATEST


def test_it_is_for_engines_that_speak_like_postgresql(app_on: AppOn, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="leave it out"):
        app_on(f"sqlite:///{tmp_path / 'shop.db'}", profile="distributed")
