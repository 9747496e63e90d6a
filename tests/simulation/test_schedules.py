"""Every promise is kept on fresh schedules, and on all that ever broke one."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.simulation import trace
from tests.simulation.schedule import Stage, Verdict

FOLDER = Path(__file__).parent
CHUNKS = 8
CHUNK = 8
FRESH = int(os.environ.get("FIRST", time.time_ns() // 1_000_000))
KNOWN = [
    int(line.split()[0])
    for line in (FOLDER / "regressions.txt").read_text().splitlines()
    if line and not line.startswith("#")
]
KNOWN_FAST = (2127,)
"""Of schedules that lean on the fast path. 2127: a newcomer whose own clock leapt did not wait before it judged."""

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_fresh_schedules_keep_every_promise(stage: Stage, chunk: int) -> None:
    for seed in range(FRESH + chunk * CHUNK, FRESH + (chunk + 1) * CHUNK):
        verdict = stage.play(seed)
        _demand_nothing_wrong(verdict)


@pytest.mark.parametrize("seed", KNOWN)
def test_schedules_that_once_failed_keep_every_promise(stage: Stage, seed: int) -> None:
    verdict = stage.play(seed)
    _demand_nothing_wrong(verdict)


@pytest.mark.parametrize("seed", KNOWN_FAST)
def test_schedules_of_the_fast_path_that_once_failed_keep_every_promise(stage: Stage, seed: int) -> None:
    verdict = stage.play(seed, {"fast": 1.0})
    _demand_nothing_wrong(verdict)


def test_a_seed_replays_exactly(stage: Stage) -> None:
    """Whatever was played before it."""
    seeds = range(15)
    first = {seed: trace.digest(stage.play(seed).world) for seed in seeds}
    assert {seed: trace.digest(stage.play(seed).world) for seed in reversed(seeds)} == first


@pytest.mark.parametrize("hash_seed", ["0", "4"])
def test_a_seed_replays_exactly_in_another_process(stage: Stage, hash_seed: str) -> None:
    """Whatever the order of its sets: this one once depended on it, and these two differed."""
    environment = os.environ | {"SEED": "77", "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulation"]
    done = subprocess.run(command, env=environment, cwd=FOLDER.parents[1], capture_output=True, text=True)
    assert trace.digest(stage.play(77).world) in done.stdout, done.stdout[-2000:] + done.stderr


def _demand_nothing_wrong(verdict: Verdict) -> None:
    if verdict.wrong:
        pytest.fail(trace.report(verdict), pytrace=False)
