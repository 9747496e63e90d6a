"""cli/exit_codes: Commands whose output is cut off, full or closed, and whose user has seen enough."""

import os
import subprocess
import sys
from pathlib import Path
from signal import SIGINT

import pytest

from penstock import Penstock
from tests.forkserver import Program, said_in, start
from tests.waiting import eventually
from tests.workers import CHECKOUT

pytestmark = pytest.mark.process

SHOP = """
from penstock import Penstock
app = Penstock("sqlite:///shop.db")

@app.task
def pay(order: int) -> int:
    return order
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With an app in it, and more jobs than fit into a pipe."""
    (tmp_path / "shop.py").write_text(SHOP)
    with Penstock(f"sqlite:///{tmp_path}/shop.db") as app:
        app.task(name="shop.pay")(lambda order: order).enqueue_many([(number,) for number in range(2000)])
    return tmp_path


def shell(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    """A line of a shell, in which $penstock is the command."""
    command = ["bash", "-c", f"set -o pipefail; penstock='{sys.executable} -m penstock'; {line}"]
    return subprocess.run(command, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=60)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHECKOUT), "PENSTOCK_APP": "shop:app"}


@pytest.mark.parametrize("options", ["--limit 2000", "--limit 2000 --json"])
def test_the_reader_may_have_seen_enough(folder: Path, options: str) -> None:
    done = shell(folder, f"$penstock jobs {options} | head -1")
    assert (done.returncode, done.stdout.count("\n"), done.stderr) == (0, 1, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no disk that is always full")
@pytest.mark.parametrize("command", ["jobs", "jobs --json", "status"])
def test_a_full_disk_is_told_in_one_line(folder: Path, command: str) -> None:
    done = shell(folder, f"$penstock {command} > /dev/full")
    assert done.returncode == 1
    assert done.stderr.startswith("penstock: the output cannot be written: ")
    assert done.stderr.count("\n") == 1


def test_closed_streams_are_no_obstacle(folder: Path) -> None:
    assert shell(folder, "$penstock enqueue shop:pay 1 >&- 2>&- <&-").returncode == 0
    assert shell(folder, "$penstock enqueue shop:nothing 1 >&- 2>&- <&-").returncode == 2
    worker = subprocess.Popen(
        ["bash", "-c", f"exec {sys.executable} -m penstock worker >&- 2>&- <&-"],
        cwd=folder,
        env=_environment(),
    )
    try:
        with Penstock(f"sqlite:///{folder}/shop.db") as app:
            count = "SELECT COUNT(*) FROM {job_states} WHERE status = 'succeeded'"
            eventually(lambda: app.database.read(lambda tx: tx.row(count)) == (2001,))
        worker.terminate()
        assert worker.wait(60) == 0
    finally:
        worker.kill()


def test_who_stops_waiting_for_a_run_is_told_that_it_goes_on(folder: Path) -> None:
    out, err = said_in(folder)
    # Not by subprocess: it would inherit our deafness to Ctrl-C where a shell has put us in the background.
    waiting = start(
        Program(["-m", "penstock", "run", "shop:pay", "1", "--wait"], folder, _environment(), out, err)
    )
    try:
        eventually(lambda: err.exists() and "no worker is running" in err.read_text(), 60)
        assert waiting.pid is not None
        os.kill(waiting.pid, SIGINT)
        waiting.join(60)
    finally:
        waiting.kill()
    assert waiting.exitcode == 130
    said = err.read_text()
    with Penstock(f"sqlite:///{folder}/shop.db") as app:
        (run,) = app.runs()
        # The line before stands there twice where the signal came in the midst of it.
        assert said.endswith(
            f"the run goes on: penstock watch {run.id}\nto stop it: penstock cancel {run.id}\n"
        )
