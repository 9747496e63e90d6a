"""The order of the tests of a run with several pytest processes: those that wait come first.

A test that starts processes, servers or a browser mostly waits for them. Were such tests the last ones, the processors
would have nothing to do beside them. So most of the pytest processes begin with them, file by file, and the others
have work for the processors meanwhile; in the end only quick tests are left, which the processes take from each other.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice

import pytest

SECONDS = {
    "browser": 4.5,
    "chaos/test_chaos.py": 25.0,
    "conformance/claim": 0.2,
    "conformance/pipelines/retention": 1.3,
    "conformance/reclaim": 0.5,
    "conformance/reconcile/row_lock": 0.5,
    "conformance/wakeups": 0.8,
    "conformance/worker": 0.3,
    "distribution": 3.3,
    "django": 3.8,
    "fuzz": 1.5,
    "plans": 4.7,
    "process": 2.5,
}
"""Folders and files of tests that mostly wait, and about how long one of them takes."""


def dealt(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """The same tests, so that xdist's `worksteal`, which gives each process a part of them at first, deals them so."""
    modules = [list(some) for _, some in groupby(items, key=_module)]
    quick = chain.from_iterable(module for module in modules if not _seconds(module))
    hands = _hands([module for module in modules if _seconds(module)], max(1, processes // 2))
    dealt: list[pytest.Item] = []
    for number, size in enumerate(_sizes(len(items), processes)):
        first = hands[number] if number < len(hands) else []
        dealt += [*first, *islice(quick, max(0, size - len(first)))]
    return [*dealt, *quick]


def _hands(modules: Sequence[list[pytest.Item]], count: int) -> list[list[pytest.Item]]:
    """Whole modules, the longest first, each to the process that has least to wait so far."""
    hands: list[list[pytest.Item]] = [[] for _ in range(count)]
    waits = [0.0] * count
    for module in sorted(modules, key=_seconds, reverse=True):
        least = waits.index(min(waits))
        hands[least] += module
        waits[least] += _seconds(module)
    return hands


def _module(test: pytest.Item) -> str:
    """Tests of one module stay together, and those of a browser: each process that runs some starts one of its own."""
    return "browser" if test.nodeid.startswith("tests/browser/") else str(test.path)


def _seconds(module: Sequence[pytest.Item]) -> float:
    """How long a module waits in all; none: it is quick."""
    test = module[0].nodeid
    each = (
        seconds
        for place, seconds in SECONDS.items()
        if test.startswith((f"tests/{place}/", f"tests/{place}::"))
    )
    return next(each, 0.0) * len(module)


def _sizes(count: int, parts: int) -> Iterator[int]:
    """The sizes of the parts that the processes begin with."""
    for left in range(parts, 0, -1):
        yield count // left
        count -= count // left
