"""runtime/pump/pump: Outcomes are settled by the dozen while more than enough waits to be run, and at once when it
does not.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.runtime.pump.pump import COLLECT_FOR, LEAST_WAITING, MOST_COLLECTED, Pump


class Waits:
    """Stands for the event that ends a wait: counts the waits, and has outcomes arrive meanwhile."""

    def __init__(self, pump: Any, arriving: int) -> None:
        self.pump = pump
        self.arriving = arriving
        self.waits = 0
        self.is_told = False

    def clear(self) -> None:
        self.is_told = False

    def set(self) -> None:
        self.is_told = True

    def wait(self, seconds: float) -> bool:
        assert seconds == COLLECT_FOR
        self.waits += 1
        for number in range(self.arriving):
            self.pump.finished(number)
            if self.is_told:
                return True
        return False


class Nothing:
    def wake(self) -> None: ...

    def is_set(self) -> bool:
        return False


def collecting(
    outcomes: int, waiting: int, arriving: int = 0, waiting_now: Callable[[], int] | None = None
) -> tuple[int, int]:
    """How often a pump waits, and what it has then."""
    made: Any = object.__new__(Pump)
    made._outbox = deque(range(outcomes))
    made.waiting = waiting_now or (lambda: waiting)
    made.stopping = made.waker = Nothing()
    made._enough = Waits(made, arriving)
    made._collecting = False
    made._collect()
    assert not made._collecting
    return made._enough.waits, len(made._outbox)


def test_a_job_that_ends_alone_is_not_kept() -> None:
    assert collecting(1, 0) == (0, 1)
    assert collecting(1, LEAST_WAITING - 1) == (0, 1)


def test_while_enough_waits_a_few_outcomes_wait_for_more() -> None:
    assert collecting(1, 500, arriving=MOST_COLLECTED) == (1, MOST_COLLECTED)
    assert collecting(MOST_COLLECTED, 500) == (0, MOST_COLLECTED)


def test_no_more_are_collected_than_wait_to_be_run() -> None:
    assert collecting(1, LEAST_WAITING, arriving=MOST_COLLECTED) == (1, LEAST_WAITING)
    assert collecting(LEAST_WAITING, LEAST_WAITING) == (0, LEAST_WAITING)


def test_the_wait_ends_when_claims_run_out() -> None:
    left = iter([100, 100, 99, 98, LEAST_WAITING, LEAST_WAITING - 1])
    assert collecting(1, 0, arriving=MOST_COLLECTED, waiting_now=lambda: next(left)) == (1, 5)


def test_but_not_for_long() -> None:
    assert collecting(1, 500) == (1, 1)
