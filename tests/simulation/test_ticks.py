"""Every tick of a schedule is accounted for, on fresh seeds."""

import os
import time
from collections.abc import Iterator

import pytest

from tests.simulation.schedule import Stage, theatre
from tests.simulation.workloads.tasks import Tasks
from tests.simulation.workloads.ticks import Ticks

FRESH = int(os.environ.get("FIRST", time.time_ns() // 1_000_000))

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def ticking() -> Iterator[Stage]:
    with theatre((Ticks(), Tasks())) as made:
        yield made


@pytest.mark.parametrize("chunk", range(6))
def test_every_tick_is_accounted_for(ticking: Stage, chunk: int) -> None:
    for seed in range(FRESH + chunk * 8, FRESH + (chunk + 1) * 8):
        verdict = ticking.play(seed)
        assert not verdict.wrong, f"seed {seed}: {verdict.wrong}"
