"""Unique keys, replaced and expired jobs, callbacks and followers keep their promises, on fresh seeds."""

import os
import time
from collections.abc import Iterator

import pytest

from tests.simulation.schedule import Stage, theatre
from tests.simulation.workloads.rules import Rules

FRESH = int(os.environ.get("FIRST", time.time_ns() // 1_000_000))

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def ruled() -> Iterator[Stage]:
    with theatre((Rules(),)) as made:
        yield made


@pytest.mark.parametrize("chunk", range(4))
def test_every_rule_is_kept(ruled: Stage, chunk: int) -> None:
    for seed in range(FRESH + chunk * 8, FRESH + (chunk + 1) * 8):
        verdict = ruled.play(seed)
        assert not verdict.wrong, f"seed {seed}: {verdict.wrong}"
