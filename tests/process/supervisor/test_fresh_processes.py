"""runtime/executors/process_executor: a program that a handler process cannot import is refused with a message."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers import CHECKOUT

pytestmark = [pytest.mark.process, pytest.mark.one_database]

PROGRAM = """
import asyncio
import os

from penstock import Penstock
from penstock.errors import JobFailed

app = Penstock(os.environ["PENSTOCK_DATABASE_URL"])


@app.task(executor="process", name="double", retries=0, max_crashes=0)
def double(number: int) -> int:
    return number * 2


async def main():
    async with app.worker():
        job = await double.enqueue_async(4)
        try:
            print("result", await job.result_async(timeout=60))
        except JobFailed as error:
            print("failed:", error)


"""
GUARDED = 'if __name__ == "__main__":\n    asyncio.run(main())\n'
BARE = "asyncio.run(main())\n"


@pytest.mark.parametrize(
    ("arguments", "ending", "said"),
    [
        (["program.py"], GUARDED, "result 8"),
        (["program.py"], BARE, "DefinitionError: this program is only being imported"),
        (["program.py"], BARE, "failed: "),
        (["-"], BARE, "<stdin> cannot be imported. Put the program into a file"),
        (["-c", PROGRAM + BARE], "", "__main__ has no double that could be imported"),
    ],
)
def test_a_program_is_told_what_its_handlers_processes_need(
    tmp_path: Path, database_url: str, arguments: list[str], ending: str, said: str
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM + ending)
    done = subprocess.run(
        [sys.executable, *arguments],
        input=PROGRAM + ending,
        cwd=tmp_path,
        env={"PYTHONPATH": str(CHECKOUT), "PENSTOCK_DATABASE_URL": database_url},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert said in done.stdout + done.stderr
