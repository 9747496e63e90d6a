"""The order of the tests of a run with several pytest processes: those that wait come first.

A test that starts processes, servers or a browser mostly waits for them. Were such tests the last ones, the processors
would have nothing to do beside them. So half of the pytest processes begin with them, file by file, and the other half
has work for the processors meanwhile; in the end only quick tests are left, which the processes take from each other.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby, islice

import pytest

WAITING = ("browser", "chaos", "distribution", "django", "docs", "fuzz", "process")
"""Folders of tests that mostly wait."""


def dealt(items: Sequence[pytest.Item], processes: int) -> list[pytest.Item]:
    """The same tests, so that xdist's `worksteal`, which gives each process a part of them at first, deals them so."""
    modules = [list(some) for _, some in groupby(items, key=lambda item: item.path)]
    waiting = [module for module in modules if _waits(module[0])]
    quick = chain.from_iterable(module for module in modules if not _waits(module[0]))
    hands = max(1, processes // 2)
    dealt: list[pytest.Item] = []
    for number, size in enumerate(_sizes(len(items), processes)):
        first = list(chain.from_iterable(waiting[number::hands])) if number < hands else []
        dealt += [*first, *islice(quick, max(0, size - len(first)))]
    return [*dealt, *quick]


def _waits(item: pytest.Item) -> bool:
    return item.nodeid.split("/")[1] in WAITING


def _sizes(count: int, parts: int) -> Iterator[int]:
    """The sizes of the parts that the processes begin with."""
    for left in range(parts, 0, -1):
        yield count // left
        count -= count // left
