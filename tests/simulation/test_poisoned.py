"""Poisoned rows and hints in the middle of all other trouble: every promise is kept to everybody else."""

import os
import time

import pytest

from tests.simulation import trace
from tests.simulation.poison import KINDS
from tests.simulation.schedule import Stage
from tests.simulation.temper import Lean

FRESH = int(os.environ.get("FIRST", time.time_ns() // 1_000_000))
CHUNKS = 4
CHUNK = 8
POISONED: Lean = {"poison": 0.05}
KNOWN = (1000365, 1002055, 1003439, 1003527, 2000271, 2001744)
"""A stop with one claim that could not be given back kept all others, and did not come to an end."""

pytestmark = pytest.mark.simulation


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_poisoned_schedules_keep_every_promise(stage: Stage, chunk: int) -> None:
    for seed in range(FRESH + chunk * CHUNK, FRESH + (chunk + 1) * CHUNK):
        verdict = stage.play(seed, POISONED)
        if verdict.wrong:
            pytest.fail(trace.report(verdict), pytrace=False)


@pytest.mark.parametrize("seed", KNOWN)
def test_poisoned_schedules_that_once_failed_keep_every_promise(stage: Stage, seed: int) -> None:
    verdict = stage.play(seed, POISONED)
    if verdict.wrong:
        pytest.fail(trace.report(verdict), pytrace=False)


def test_every_kind_of_poison_is_given(stage: Stage) -> None:
    for seed in range(20):
        stage.play(seed, POISONED)
    wanted = {f"poisoned {kind}" for kind in KINDS}
    assert wanted <= set(stage.struck), sorted(wanted - set(stage.struck))
