"""The order of the tests: all of them are run, and those that wait are begun with."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ordering import SECONDS, dealt


def _tests(module: str, count: int) -> list[Any]:
    return [SimpleNamespace(path=Path(module), nodeid=f"{module}::{number}") for number in range(count)]


@pytest.mark.parametrize("processes", [1, 2, 3, 6])
@pytest.mark.parametrize("waiting", [0, 1, 30, 300])
def test_every_test_is_dealt_once(processes: int, waiting: int) -> None:
    slow = [test for module in range(5) for test in _tests(f"tests/process/test_{module}.py", waiting)]
    items = [*_tests("tests/conformance/test_a.py", 100), *slow, *_tests("tests/pure/test_b.py", 47)]
    assert sorted(map(id, dealt(items, processes))) == sorted(map(id, items))


def test_two_of_four_processes_begin_with_tests_that_wait() -> None:
    items = [*_tests("tests/conformance/test_a.py", 50), *_tests("tests/process/test_b.py", 3)]
    items += [*_tests("tests/process/test_c.py", 3), *_tests("tests/pure/test_d.py", 4)]
    order = [item.nodeid.split("/")[1] for item in dealt(items, 4)]
    assert [order[at] for at in (0, 2, 3, 15, 17, 18, 30, 45)] == [
        *("process", "process", "conformance"),
        *("process", "process", "conformance"),
        *("conformance", "conformance"),
    ]


def test_this_run_is_in_that_order(request: pytest.FixtureRequest) -> None:
    config = request.config
    if not hasattr(config, "workerinput") or not config.workerinput["steals"]:
        pytest.skip("its tests are not dealt to several processes")
    waits = [
        item.nodeid.startswith(tuple(f"tests/{place}" for place in SECONDS)) for item in request.session.items
    ]
    assert waits[0] or not any(waits)
