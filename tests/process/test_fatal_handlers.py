"""A handler that takes its interpreter down: the log says where."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.errors import JobFailed
from tests.waiting import eventually
from tests.workers import WorkerProcess

pytestmark = pytest.mark.process

MODULE = """
import ctypes
from penstock import Penstock

app = Penstock()


def read_nowhere():
    ctypes.string_at(0)

@app.task(name="in_process", executor="process")
def in_process(): read_nowhere()

@app.task(name="in_thread")
def in_thread(): read_nowhere()
"""


@pytest.mark.parametrize("name", ["in_process", "in_thread"])
def test_a_segmentation_fault_shows_its_place(
    name: str,
    tmp_path: Path,
    app_on: Callable[[str], Penstock],
    workers_on: Callable[[str], Callable[..., WorkerProcess]],
) -> None:
    url = f"sqlite:///{tmp_path}/shop.db"
    worker = workers_on(url)("--processes", "1", module=MODULE)
    eventually(lambda: "(all) started" in worker.log)
    assert "alembic" not in worker.log
    app = app_on(url)

    @app.task(name=name, max_crashes=0)
    def read() -> None: ...

    with pytest.raises(JobFailed, match="crashes_exhausted"):
        read.enqueue().result(timeout=30)
    eventually(lambda: "Segmentation fault" in worker.log)
    eventually(lambda: "in read_nowhere" in worker.log)
