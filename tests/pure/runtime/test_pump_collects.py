"""Outcomes are settled by the dozen while more than enough waits to be run, and at once when it does not."""

import threading
from collections import deque
from typing import Any

import pytest

from penstock.runtime.pump.pump import DOZENS, NAPS, Pump


def collecting(
    outcomes: int, waiting: int, monkeypatch: pytest.MonkeyPatch, arriving: int = 0
) -> tuple[int, int]:
    """How often a pump naps, and what it has then."""
    made: Any = object.__new__(Pump)
    made._outbox = deque(range(outcomes))
    made.waiting = lambda: waiting
    made.stopping = threading.Event()
    naps: list[float] = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        made._outbox.extend(range(arriving))

    monkeypatch.setattr("time.sleep", nap)
    made._collect()
    return len(naps), len(made._outbox)


def test_a_job_that_ends_alone_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert collecting(1, 0, monkeypatch) == (0, 1)
    assert collecting(1, DOZENS - 1, monkeypatch) == (0, 1)


def test_while_enough_waits_a_few_outcomes_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert collecting(1, DOZENS, monkeypatch, arriving=DOZENS // 2) == (2, DOZENS + 1)
    assert collecting(DOZENS, 500, monkeypatch) == (0, DOZENS)


def test_but_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert collecting(1, 500, monkeypatch) == (NAPS, 1)
