"""Async code goes into threads in one way: by `penstock/async_bridge.py`."""

import re
from pathlib import Path

from tests.architecture.source import Module, modules

INTO_A_THREAD = re.compile(r"\b(?:to_thread|ThreadPoolExecutor|run_in_executor)\(")
HOMES = ("penstock.async_bridge", "penstock.runtime.executors", "penstock.testing")
"""The bridge itself; handlers, which have executors of their own; and `drain`, which does the work of a worker."""
SAMPLE = "async def go():\n    await asyncio.to_thread(work)\n"


def test_threads_are_had_from_the_bridge() -> None:
    found = {
        module.name for module in modules() if INTO_A_THREAD.search(module.text) and not module.is_in(*HOMES)
    }
    assert not found


def test_another_way_would_be_found(tmp_path: Path) -> None:
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE)
    assert INTO_A_THREAD.search(Module("sample", path).text)
