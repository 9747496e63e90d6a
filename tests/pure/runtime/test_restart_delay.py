"""runtime/supervisor/child_process: how long a place stays empty after a child has died in it."""

import os
import time

import pytest

from penstock.runtime.supervisor.child_process import (
    LONGEST_DELAY,
    LONGEST_DELAY_WHEN_READY,
    ChildProcess,
    ChildSlot,
    delay_after,
)


def dead_child(lived: float, ready: bool, told: bool = False) -> ChildProcess:
    read, write = os.pipe()
    if ready:
        os.write(write, b"!")
    os.close(write)
    return ChildProcess(1, "birth", time.monotonic() - lived, read, told, code=1)


def test_the_first_deaths_are_forgiven_and_then_the_delay_grows() -> None:
    delays = [delay_after(deaths, ready=False) for deaths in range(1, 20)]
    assert delays[:2] == [0, 0]
    assert delays == sorted(delays)
    assert 0 < delays[2] < 1
    assert delays[-1] == LONGEST_DELAY


def test_a_child_that_was_ready_is_replaced_within_two_seconds_always() -> None:
    assert max(delay_after(deaths, ready=True) for deaths in range(100)) == LONGEST_DELAY_WHEN_READY < 2


def test_deaths_at_the_start_add_up_and_a_long_life_forgives_them() -> None:
    place = ChildSlot(0)
    delays = [place.lost(dead_child(0.1, ready=False)) for _ in range(5)]
    assert delays[-1] > 0
    assert place.deaths == 5
    assert place.lost(dead_child(60, ready=True)) == 0
    assert place.deaths == 0


@pytest.mark.parametrize("lived", [0.1, 60])
def test_a_child_that_was_told_to_stop_did_not_die_young(lived: float) -> None:
    place = ChildSlot(0, deaths=7)
    assert place.lost(dead_child(lived, ready=True, told=True)) == 0
    assert place.deaths == 0


def test_a_child_says_whether_it_was_ever_ready() -> None:
    assert dead_child(1, ready=True).was_ready()
    assert not dead_child(1, ready=False).was_ready()
