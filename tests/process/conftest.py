"""A small application, known to the test and to the workers it starts."""

import os
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.job import Job
from penstock.operate.jobs import JobReport, job_report
from penstock.operate.processes import ProcessRow, list_processes
from tests.chaos.standby import Pair
from tests.conftest import SESSION
from tests.process.shop_source import SHOP
from tests.waiting import eventually
from tests.workers import WorkerProcess, Workers


class Shop:
    """The application as the test sees it, and ways to look at its workers."""

    def __init__(self, module: object, workers: Workers) -> None:
        self.module = module
        self.start_worker = workers
        self.app: Penstock = module.app  # type: ignore[attr-defined]
        self.gate = workers.folder / "gate"

    def enqueue(self, task: str, *arguments: object, **options: object) -> Job:
        return getattr(self.module, task).options(**options).enqueue(*arguments)  # type: ignore[no-any-return]

    def hold(self, task: str = "hold") -> Job:
        """A job that runs until the gate is opened."""
        return self.enqueue(task, str(self.gate))

    def open_gate(self) -> None:
        self.gate.touch()

    def start(self, *options: str, children: int = 1, env: dict[str, str] | None = None) -> WorkerProcess:
        """Start a supervisor and wait until its children are at work."""
        before = len(self.workers())
        worker = self.start_worker("--processes", str(children), *options, env=env)
        eventually(lambda: len(self.workers()) == before + max(1, children))
        return worker

    def workers(self) -> list[ProcessRow]:
        return [process for process in self.processes() if process.role != "supervisor"]

    def processes(self) -> list[ProcessRow]:
        return self.app.database.read(list_processes)

    def holder_of(self, job: Job) -> ProcessRow:
        """The worker that runs the job, once one does."""

        def look() -> ProcessRow | None:
            held = self.story(job).job.process_id
            return next((worker for worker in self.workers() if worker.id == held), None)

        found = eventually(look)
        assert found is not None
        return found

    def begun(self, *jobs: Job, attempt: int = 1) -> None:
        """Wait until the handlers of these jobs really run."""
        files = [self.start_worker.folder / f"began-{job.id}-{attempt}" for job in jobs]
        eventually(lambda: all(file.exists() for file in files))

    def story(self, job: Job) -> JobReport:
        told = self.app.database.read(job_report, job.id)
        assert told is not None
        return told

    def outcomes(self, job: Job) -> list[str]:
        return [attempt.outcome.value for attempt in job.attempts()]

    def spent(self, job: Job) -> tuple[int, int]:
        """Retries and crashes."""
        told = self.story(job).job
        return told.retry_count, told.crash_count


@pytest.fixture
def shop(worker_process: Workers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    yield from _shop(worker_process, monkeypatch)


def _shop(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    workers.write_module(SHOP)
    monkeypatch.setenv("PENSTOCK_DATABASE_URL", workers.database_url)
    monkeypatch.syspath_prepend(str(workers.folder))
    sys.modules.pop("shop", None)
    shop = Shop(import_module("shop"), workers)
    yield shop
    shop.app.close()
    sys.modules.pop("shop", None)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.fixture
def pair(pytestconfig: pytest.Config) -> Iterator[Pair]:
    """A PostgreSQL primary; `pair.follow()` gives it a synchronous standby."""
    folder = pytestconfig.stash[SESSION] / f"own-{os.getpid()}-pair"
    folder.mkdir(mode=0o711)
    pair = Pair(folder)
    try:
        yield pair
    finally:
        pair.stop()
        shutil.rmtree(folder, ignore_errors=True)
