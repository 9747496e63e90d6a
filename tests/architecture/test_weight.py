"""A worker of plain tasks does not carry what only others need, and stays small (docs/decisions/023)."""

import json
import subprocess
import sys
from pathlib import Path
from signal import SIGKILL

import pytest

from penstock import Penstock
from tests.conformance.rows import count
from tests.servers.server import as_child
from tests.waiting import eventually
from tests.workers import CHECKOUT

HEAVY = {"alembic", "pydantic", "pymysql", "rich", "sqlalchemy", "typer"}
HEAVY |= {f"penstock.{name}" for name in ("dashboard.dashboard", "reconcile.table")}
ONE_WORKER, FOUR_WORKERS = 60, 110
"""Megabytes: the most that a worker has at its peak; that a supervisor has with four, shared memory counted once."""
MEASURED = pytest.mark.skipif(
    not Path("/proc/self/smaps_rollup").exists(), reason="Linux tells what a process has"
)
PROGRAM = """
import asyncio, json, sys
from pathlib import Path

from penstock import Penstock

app = Penstock(sys.argv[1])

@app.task
async def double(number: int) -> int:
    return number * 2

async def main() -> int:
    async with app.worker():
        return await double.enqueue(21).result_async(timeout=60)

result, status = asyncio.run(main()), Path("/proc/self/status")
lines = status.read_text().splitlines() if status.exists() else []
peak = sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(json.dumps([result, sorted(sys.modules), peak]))
"""
MODULE = """
from penstock import Penstock

app = Penstock({url!r})

@app.task
async def double(number: int) -> int:
    return number * 2
"""


def test_a_worker_of_plain_tasks_brings_in_nothing_heavy(app: Penstock, database_url: str) -> None:
    app.migrate()
    program = [sys.executable, "-c", PROGRAM, database_url]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result, modules, peak = json.loads(done.stdout)
    assert result == 42
    allowed = {"pymysql"} if database_url.startswith("mysql") else set()
    if "?" in database_url:
        allowed.add("sqlalchemy")  # which knows how to hand such options to a driver
    else:
        assert peak < ONE_WORKER * 1024
    assert HEAVY.intersection(modules) <= allowed


@MEASURED
@pytest.mark.process
def test_a_supervisor_with_four_workers_is_small(app: Penstock, database_url: str, tmp_path: Path) -> None:
    """Not by the tests' own way to start workers, which brings in modules beforehand."""
    app.migrate()
    (tmp_path / "light.py").write_text(MODULE.format(url=database_url))
    command = [sys.executable, "-m", "penstock", "worker", "light:app", "--processes", "4"]
    environment = {"PYTHONPATH": f"{CHECKOUT}:{tmp_path}", "PATH": "/usr/bin:/bin"}
    with (tmp_path / "log").open("wb") as log:
        worker = subprocess.Popen(
            as_child(command, SIGKILL, who="same"), env=environment, cwd=tmp_path, stderr=log
        )
    try:
        eventually(lambda: count(app, "processes") == 5, timeout=60)
        job = app.find_task("light.double") or app.task(name="light.double")(_double)
        assert job.enqueue(4).result(30) == 8
        family = [worker.pid, *map(int, _children(worker.pid))]
        assert len(family) == 5
        assert sum(map(_kilobytes, family)) < FOUR_WORKERS * 1024
    finally:
        worker.terminate()
        worker.wait(30)


async def _double(number: int) -> int:
    return number * 2


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _kilobytes(pid: int) -> int:
    """Its own, and its part of what it shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
