"""pytest_plugin: the pytest plugin in a project of its own: fixtures, marker, several processes, async tests, and
what is refused.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.workers import CHECKOUT

pytestmark = pytest.mark.process

SHOP = """
from penstock import Concurrency, Penstock

app = Penstock()
sent = []

@app.task(retries=2, limits=[Concurrency(1, key="order_id")])
def send(order_id: int) -> int:
    if order_id < 0:
        raise LookupError(f"no order {order_id}")
    sent.append(order_id)
    return order_id

@app.task
async def send_later(order_id: int) -> int:
    return send.enqueue(order_id).id and order_id

@app.pipeline
def pair(first: int, second: int):
    return [send(first), send(second)]

send.schedule(every=60, name="often", args=(7,))
"""

TESTS = """
import asyncio
import pytest
import shop

@pytest.mark.parametrize("number", range(3))
def test_each_test_has_an_empty_database(number, penstock_app, penstock_drain, penstock_enqueued):
    penstock_enqueued(shop.send, count=0)
    job = shop.send.options(key="once").enqueue(number)
    run = shop.pair.options(key="once").trigger(number, 2)
    assert penstock_drain() >= 3
    assert job.result(0) == number
    assert run.result(0) == [number, 2]
    assert [each.name for each in penstock_app.schedules()] == ["often"]
    penstock_enqueued(shop.send, number, queue="default")

def test_the_clock_is_moved(penstock_drain, penstock_travel):
    job = shop.send.options(delay=3600).enqueue(1)
    penstock_drain()
    assert job.status == "scheduled"
    penstock_travel(3600)
    penstock_drain()
    assert job.status == "succeeded"

def test_and_is_set_back(penstock_app):
    assert penstock_app.database.clock_shift == 0

@pytest.mark.penstock(raises=True)
def test_errors_are_raised(penstock_drain):
    shop.send.enqueue(-1)
    with pytest.raises(LookupError, match="no order -1"):
        penstock_drain()
    assert penstock_drain(raises=False) == 0

@pytest.mark.penstock(inline=True, raises=True)
def test_work_is_done_where_it_is_enqueued():
    shop.send.enqueue(12)
    assert 12 in shop.sent
    with pytest.raises(LookupError):
        shop.send.enqueue(-1)

@pytest.mark.asyncio
async def test_by_pytest_asyncio(penstock_drain_async):
    job = await shop.send_later.enqueue_async(5)
    assert await penstock_drain_async() >= 2
    assert await job.result_async(0) == 5

def test_that_asks_for_nothing():
    assert shop.app.database.clock_shift == 0
"""
BY_ANYIO = """
@pytest.mark.anyio
async def test_by_anyio(anyio_backend_name, penstock_drain_async):
    job = await shop.send_later.enqueue_async(5)
    assert await penstock_drain_async() >= 2
    assert await job.result_async(0) == 5
"""
"""For projects whose async tests are run by the plugin of anyio, which only some of the extras bring along."""


class Project:
    """A project that pytest is run in, with Penstock installed as its distribution says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        told = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
        meta = folder / "installed" / "penstock_of_the_project-0.1.dist-info"
        meta.mkdir(parents=True)
        (meta / "METADATA").write_text("Metadata-Version: 2.1\nName: penstock-of-the-project\nVersion: 0.1\n")
        lines = "\n".join(f"{name} = {where}" for name, where in told.items())
        (meta / "entry_points.txt").write_text(f"[pytest11]\n{lines}\n")
        (folder / "shop.py").write_text(SHOP)
        (folder / "conftest.py").write_text(
            "import shop\nimport pytest\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n"
        )

    def run(self, tests: str, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "test_shop.py").write_text(tests)
        lines = [f"{name} = {value}" for name, value in settings.items()]
        (self.folder / "pytest.ini").write_text(
            "\n".join(["[pytest]", "addopts = --strict-markers", "pythonpath = .", *lines])
        )
        path = os.pathsep.join([str(self.folder / "installed"), str(CHECKOUT)])
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "PYTEST_"))
        }
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
            cwd=self.folder,
            env={**clean, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=110,
        )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_a_project_on_a_database_in_memory(project: Project) -> None:
    done = project.run(TESTS, penstock_app="shop:app")
    assert done.returncode == 0, done.stdout
    assert "9 passed" in done.stdout


def test_async_tests_by_anyio(project: Project) -> None:
    pytest.importorskip("anyio", reason="anyio is not installed")
    done = project.run(TESTS + BY_ANYIO, penstock_app="shop:app")
    assert done.returncode == 0, done.stdout
    assert "10 passed" in done.stdout


def test_two_processes_share_a_database(project: Project, empty_database_url: str) -> None:
    done = project.run(TESTS, "-n", "2", penstock_app="shop:app", penstock_database=empty_database_url)
    assert done.returncode == 0, done.stdout
    assert "9 passed" in done.stdout


@pytest.mark.one_database
def test_what_is_wrong_is_said_by_name(project: Project, sqlite_url: str) -> None:
    asks = "def test_it(penstock_app): ...\n"
    done = project.run(asks)
    assert "which app? Name it in pytest's configuration" in done.stdout, done.stdout
    (project.folder / "shop.py").write_text(SHOP.replace("Penstock()", f"Penstock({sqlite_url!r})"))
    done = project.run(asks, penstock_app="shop:app")
    assert "not on the test database (penstock_database), and its tables would be emptied" in done.stdout
    marked = "import pytest\n@pytest.mark.penstock(raise_all=True)\ndef test_it(): ...\n"
    done = project.run(marked, penstock_app="shop:app")
    assert "the marker penstock takes inline= and raises=, not raise_all" in done.stdout + done.stderr
    own = "import shop, pytest\n@pytest.fixture\ndef penstock_app():\n    shop.app.migrate()\n    return shop.app\n"
    done = project.run(own + "def test_it(penstock_drain):\n    assert penstock_drain() == 0\n")
    assert done.returncode == 0, done.stdout
