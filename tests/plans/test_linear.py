"""Every statement of a worker touches rows in proportion to its batch: on each version of PostgreSQL, MariaDB, MySQL.

TEST_POSTGRES_VERSIONS=15,16,17,18 names the versions, which are fetched if need be; otherwise it is the one that all
tests run on, the oldest other one that is here or can be fetched, and one between them: another one each day. MySQL is
the system's, or fetched from Debian's unstable suite, with other statistics each day;
TEST_MYSQL_STATES=empty,full,ended has all of them. Its counters are slow to read.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock
from tests.conftest import migrate
from tests.plans.history import STATES, prepare
from tests.plans.measuring import counting, measuring
from tests.plans.scenes import SCENES
from tests.servers.binaries import mysql_programs, postgres_folder
from tests.servers.errors import Unavailable
from tests.servers.mariadb import Mariadb
from tests.servers.postgres import Postgres
from tests.servers.versions import installed, programs_of

SIZE = 150
MOST = 25
"""Rows for each of the batch, over all nodes of a plan. Each with each would be 150, the whole table more than that."""
OLDEST = 15
CHOSEN = os.environ.get("TEST_POSTGRES_VERSIONS", "")
OF_THE_DAY = STATES[date.today().toordinal() % len(STATES)]
MYSQL_STATES = os.environ.get("TEST_MYSQL_STATES", OF_THE_DAY).split(",")


@cache
def versions() -> list[int]:
    if CHOSEN:
        return [int(one) for one in CHOSEN.split(",")]
    if not installed():
        return []
    usual = next(version for version, folder in installed().items() if folder == postgres_folder())
    oldest = min([version for version in installed() if version != usual], default=OLDEST)
    between = range(min(usual, oldest) + 1, max(usual, oldest))
    # By the day, for all processes of a run must choose the same.
    chosen = [between[date.today().toordinal() % len(between)]] if between else []
    return [usual, oldest, *chosen]


@pytest.fixture(scope="module")
def server_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Postgres]]:
    with ExitStack() as stack:

        @cache
        def started(version: int) -> Postgres:
            folder = tmp_path_factory.mktemp(f"postgres-{version}") / "server"
            return stack.enter_context(Postgres(folder, programs=programs_of(version)))

        yield started


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("version", versions())
def test_a_batch_touches_as_many_rows_as_it_has(
    server_of: Callable[[int], Postgres], pytestconfig: pytest.Config, version: int, state: str
) -> None:
    if "postgres" not in pytestconfig.getoption("--database"):
        pytest.skip("--database leaves PostgreSQL out")
    try:
        server = server_of(version)
    except Unavailable as missing:
        pytest.skip(f"the plans of PostgreSQL {version} are not tested: {missing}")
    url = server.create_database(f"plans_{state}")
    migrate(url)
    app = Penstock(url, batch=SIZE)
    plays = [scene(app) for scene in SCENES]
    prepare(app, plays, state)
    with measuring() as measured:
        for play in plays:
            play(SIZE)
    app.close()
    found = measured.most()
    assert len(found) > 50
    check_tables(found)
    slow = [f"{sql}\n{shown(plan)}" for sql, (touched, plan) in found.items() if touched > MOST * SIZE]
    assert not slow, "\n".join(slow)


@pytest.mark.own_database
@pytest.mark.parametrize("state", STATES)
def test_a_batch_reads_as_many_rows_as_it_has_on_mariadb(mariadb_url: str, state: str) -> None:
    check_reads(mariadb_url, state)


@pytest.fixture(scope="module")
def mysql(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Mariadb]:
    if "mariadb" not in pytestconfig.getoption("--database"):
        pytest.skip("--database leaves MariaDB and MySQL out")
    try:
        with Mariadb(tmp_path_factory.mktemp("mysql") / "server", mysql_programs()) as server:
            yield server
    except Unavailable as missing:
        pytest.skip(f"the plans of MySQL are not tested: {missing}")


@pytest.mark.timeout(300)  # it may have to be fetched
@pytest.mark.parametrize("state", MYSQL_STATES)
def test_a_batch_reads_as_many_rows_as_it_has_on_mysql(mysql: Mariadb, state: str) -> None:
    url = mysql.create_database(f"plans_{state}")
    migrate(url)
    check_reads(url, state)


def check_reads(url: str, state: str) -> None:
    app = Penstock(url, batch=SIZE)
    plays = [scene(app) for scene in SCENES]
    prepare(app, plays, state)
    with counting() as counted:
        for play in plays:
            play(SIZE)
    app.close()
    assert len(counted) > 40
    check_tables(counted)
    slow = [f"{read}: {sql}" for sql, read in counted.items() if read > MOST * SIZE]
    assert not slow, "\n".join(slow)


def check_tables(statements: Iterable[str]) -> None:
    """The scenes have come to the tables that only some of them use."""
    some = ("schedule_ticks", "job_followers", "joins", "rollups", "queue_samples")
    for table in ("plan_widgets", *[f"penstock_{name}" for name in some]):
        assert any(table in sql for sql in statements), table


def shown(plan: Any, depth: int = 0) -> str:
    told = [str(plan.get(name, "")) for name in ("Node Type", "Join Type", "Relation Name", "Index Name")]
    line = f"{'  ' * depth}{' '.join(told)} rows {plan['Actual Rows']} loops {plan['Actual Loops']}"
    return "\n".join([line, *[shown(part, depth + 1) for part in plan.get("Plans", ())]])


def test_the_versions_are_told_apart(tmp_path: Path) -> None:
    for version, folder in installed().items():
        assert (folder / "postgres").exists()
        assert version >= 10
