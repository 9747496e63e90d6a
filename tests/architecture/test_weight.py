"""A worker of plain tasks is not to carry what only others need (docs/decisions/023)."""

import json
import subprocess
import sys

from penstock import Penstock

HEAVY = {"alembic", "pydantic", "pymysql", "rich", "sqlalchemy", "typer"}
HEAVY |= {
    f"penstock.pipelines.{name}"
    for name in (
        "advance.advance",
        "define.graph",
        "lifecycle.claimed_steps",
        "lifecycle.start",
        "pipeline",
        "run",
    )
}
PROGRAM = """
import asyncio, json, sys

from penstock import Penstock

app = Penstock(sys.argv[1])

@app.task
async def double(number: int) -> int:
    return number * 2

async def main() -> int:
    async with app.worker():
        return await double.enqueue(21).result_async(timeout=60)

print(json.dumps([asyncio.run(main()), sorted(sys.modules)]))
"""


def test_a_worker_of_plain_tasks_brings_in_nothing_heavy(app: Penstock, database_url: str) -> None:
    app.migrate()
    program = [sys.executable, "-c", PROGRAM, database_url]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    result, modules = json.loads(done.stdout)
    assert result == 42
    allowed = {"pymysql"} if database_url.startswith("mysql") else set()
    if "?" in database_url:
        allowed.add("sqlalchemy")  # which knows how to hand such options to a driver
    assert HEAVY.intersection(modules) <= allowed
