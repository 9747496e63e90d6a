"""Whatever is given to a command that goes on until it is told to stop: it ends then, and leaves no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.cli.autoreload import Reloader
from tests.fuzz.command_tree import ENDLESS, endless_lines
from tests.fuzz.drawing import drawn
from tests.waiting import eventually

CASES = 4
"""Fresh ones in each run, on each database."""
KNOWN = [
    ["demo", "--orders=1000"],
    ["run", "--wait", "--", "hostile_app:pipe", "x"],
    ["worker", "--autoreload", "--processes=1", "--", "hostile_app:app"],
]
SECONDS = 3.0
"""So long a command is left alone."""
ENDS = (0, 1, 2, 3, 130, -signal.SIGINT)
PATIENCE = 30.0
"""It has to end within so many seconds after it was told to."""
MODULE = """
from penstock import Penstock
app = Penstock()
@app.task(name="plain", retries=0)
def plain(x: str) -> str: return x
@app.pipeline(name="pipe")
def pipe(x: str) -> object: return plain(x)
"""

pytestmark = pytest.mark.process


@pytest.fixture
def folder(tmp_path: Path, app: Penstock) -> Path:
    app.prepare()
    (tmp_path / "hostile_app.py").write_text(MODULE)
    return tmp_path


@pytest.mark.one_database
@pytest.mark.parametrize("line", KNOWN, ids=lambda line: line[0])
def test_a_command_that_goes_on_ends_when_it_is_told_to(
    folder: Path, database_url: str, line: list[str]
) -> None:
    assert ends(folder, database_url, line), f"{line} ended before it was told to"


def test_a_command_that_goes_on_ends_whatever_it_is_given(folder: Path, database_url: str) -> None:
    for line in drawn(endless_lines(["default", "pipe", "plain"]), CASES):
        ends(folder, database_url, line)


def test_every_command_that_serves_is_drawn() -> None:
    assert {("demo",), ("run",), ("worker",), ("dashboard",), ("mcp",)} <= ENDLESS.keys()


@pytest.mark.one_database
@pytest.mark.parametrize("ended", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_while_no_worker_runs_is_heard_by_the_next(tmp_path: Path, ended: signal.Signals) -> None:
    """A reloader told to stop just before it starts the worker passes that on, and tells of it as a shell does."""
    reloader = Reloader(tmp_path, [sys.executable, "-c", "import time; time.sleep(60)"])
    reloader.pass_on(ended)
    began = time.monotonic()
    assert reloader.run() in (128 + ended, 1)  # 1: its Python had begun, and raised KeyboardInterrupt
    assert time.monotonic() - began < PATIENCE


def ends(folder: Path, database_url: str, line: Sequence[str]) -> bool:
    """True if it went on until it was told to stop. Its end, and what it has said, are as they should be."""
    environment = os.environ | {"PENSTOCK_DATABASE_URL": database_url, "TMPDIR": str(folder)}
    log = folder / "log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *line],
            cwd=folder,
            env=environment | {"PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        went_on = _told_to_stop(process, line)
        eventually(lambda: not _lives(process.pid), timeout=PATIENCE)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    words = log.read_text(errors="replace")
    assert process.returncode in ENDS, (line, process.returncode, words[-2000:])
    if not words.rstrip().endswith("KeyboardInterrupt"):  # on a slow machine it was still being imported
        assert "Traceback (most recent call last)" not in words, (line, words[-2000:])
    return went_on


def _told_to_stop(process: subprocess.Popen[bytes], line: Sequence[str]) -> bool:
    try:
        process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            pytest.fail(f"{line} does not end")
        return True
    return False


def _lives(group: int) -> bool:
    """True if a process that the command has started is still there."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
