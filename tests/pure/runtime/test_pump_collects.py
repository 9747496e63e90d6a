"""runtime/pump/pump: Outcomes are settled by the dozen while more than enough waits to be run, and at once when it
does not.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.runtime.pump.pump import (
    COLLECT_FOR,
    FIRST_COLLECT_FOR,
    FIRST_COLLECTED,
    LEAST_WAITING,
    MOST_COLLECTED,
    Pump,
)


class Waits:
    """Stands for the event that ends a wait: counts the waits, and has outcomes arrive meanwhile."""

    def __init__(self, pump: Any, first: int, arriving: int) -> None:
        self.pump = pump
        self.first = first
        self.arriving = arriving
        self.waits = 0
        self.is_told = False

    def clear(self) -> None:
        self.is_told = False

    def set(self) -> None:
        self.is_told = True

    def wait(self, seconds: float) -> bool:
        assert seconds in (FIRST_COLLECT_FOR, COLLECT_FOR)
        self.waits += 1
        for number in range(self.first if seconds == FIRST_COLLECT_FOR else self.arriving):
            self.pump.finished(number)
            if self.is_told:
                return True
        return False


class Nothing:
    def wake(self) -> None: ...

    def is_set(self) -> bool:
        return False


def collecting(
    outcomes: int,
    waiting: int,
    arriving: int = 0,
    waiting_now: Callable[[], int] | None = None,
    first: int = 0,
) -> tuple[int, int]:
    """How often a pump waits, and what it has then. `first` outcomes come in its first, short wait."""
    made: Any = object.__new__(Pump)
    made._outbox = deque(range(outcomes))
    made.waiting = waiting_now or (lambda: waiting)
    made.stopping = made.waker = Nothing()
    made._enough = Waits(made, first, arriving)
    made._collecting = False
    made._collect()
    assert not made._collecting
    return made._enough.waits, len(made._outbox)


def test_a_job_that_ends_alone_is_not_kept() -> None:
    assert collecting(1, 0) == (0, 1)
    assert collecting(1, LEAST_WAITING - 1) == (0, 1)


def test_a_process_that_is_quick_begins_a_turn_with_few() -> None:
    assert collecting(1, 500, first=MOST_COLLECTED) == (1, FIRST_COLLECTED)
    assert collecting(FIRST_COLLECTED, 500) == (0, FIRST_COLLECTED)


def test_a_process_that_is_slow_collects_more() -> None:
    assert collecting(1, 500, arriving=MOST_COLLECTED) == (2, MOST_COLLECTED)
    assert collecting(1, 500, first=FIRST_COLLECTED // 2, arriving=MOST_COLLECTED) == (2, MOST_COLLECTED)


def test_no_more_are_collected_than_wait_to_be_run() -> None:
    assert collecting(1, LEAST_WAITING, arriving=MOST_COLLECTED) == (2, LEAST_WAITING)
    assert collecting(LEAST_WAITING, LEAST_WAITING) == (0, LEAST_WAITING)


def test_the_wait_ends_when_claims_run_out() -> None:
    left = iter([100, 100, 99, 98, LEAST_WAITING, LEAST_WAITING - 1])
    assert collecting(1, 0, first=MOST_COLLECTED, waiting_now=lambda: next(left)) == (1, 5)


def test_but_not_for_long() -> None:
    assert collecting(1, 500) == (2, 1)
