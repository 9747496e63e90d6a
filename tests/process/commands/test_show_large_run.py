"""cli/commands/show_run, operate/run_report: `penstock show` of a run with 20,000 steps, in a process of its own:
`operate/run_report.py` reads it in pages.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.database.transaction import Transaction
from penstock.pipelines.model.expressions import path_text
from penstock.pipelines.run import Run
from penstock.testing import drain
from penstock.values.ids import new_id
from tests.workers import CHECKOUT

pytestmark = pytest.mark.process

STEPS = 20_000
MOST_MEGABYTES = 80
SHOW = """
import sys
from penstock.cli.main import main
try:
    main(sys.argv[2:])
finally:
    lines = open("/proc/self/status").read().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM"))
    open(sys.argv[1], "w").write(peak.split()[1])
"""
COPY = "SELECT task, queue, priority, payload, options, max_crashes, run_id, node FROM {jobs} WHERE id = :id"


def large_run(app: Penstock) -> Run:
    """A run that has succeeded. Its elements are copies of one that a worker has done: that takes less time."""

    @app.task(name="item")
    def item(number: int) -> str:
        return "x" * 200

    @app.task(name="count")
    def count(items: list[str]) -> int:
        return len(items)

    @app.pipeline(name="wide")
    def wide() -> object:
        return count(item.map([0]).collect())

    run = wide.trigger()
    drain(app)
    (done,) = [step for step in run.steps() if step.key == "item"]
    for first in range(1, STEPS - 1, 2_000):
        app.database.in_transaction(_copy, done.id, range(first, min(first + 2_000, STEPS - 1)))
    return run


def _copy(tx: Transaction, id: str, numbers: range) -> None:
    names = ("task", "queue", "priority", "payload", "options", "max_crashes", "run_id", "node")
    job = dict(zip(names, tx.rows(COPY, id=id)[0], strict=True))
    ids = {number: new_id() for number in numbers}
    jobs = [job | {"id": ids[number], "path": path_text((number,))} for number in numbers]
    tx.insert("jobs", jobs, created_at="{now}")
    state = {"status": "succeeded", "generation": 1, "retry_count": 0, "crash_count": 0}
    states = [state | {"job_id": id, "cancel_requested": False} for id in ids.values()]
    tx.insert("job_states", states, finished_at="{now}")
    attempt = {"generation": 1, "outcome": "succeeded", "output": json.dumps("x" * 200)}
    attempts = [attempt | {"job_id": id} for id in ids.values()]
    tx.insert("executions", attempts, started_at="{now}", finished_at="{now}")


@pytest.mark.one_database
def test_it_takes_little_memory_whatever_the_number_of_steps(
    make_app: Callable[..., Penstock], database_url: str, tmp_path: Path
) -> None:
    run = large_run(make_app())

    def show(*options: str) -> tuple[str, float]:
        peak = tmp_path / "peak"
        command = [
            sys.executable,
            "-c",
            SHOW,
            str(peak),
            "show",
            run.id,
            *options,
            "--database",
            database_url,
        ]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True)
        return done.stdout, int(peak.read_text()) / 1024

    text, megabytes = show()
    assert f"item: {STEPS - 1} succeeded" in text
    assert "result: 1" in text
    assert megabytes < MOST_MEGABYTES
    text, megabytes = show("--json")
    steps = json.loads(text)["steps"]
    assert len({step["job"] for step in steps}) == len(steps) == STEPS
    assert [step["path"] for step in steps if step["key"] == "item"] == [[n] for n in range(STEPS - 1)]
    assert megabytes < MOST_MEGABYTES
