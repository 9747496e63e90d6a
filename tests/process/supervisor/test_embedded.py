"""runtime/worker: a worker inside an application: it starts with it, and stops in order when the application does."""

import signal
from pathlib import Path

import pytest

from tests.process.history import check, recover, rows
from tests.process.programs import MODULE
from tests.process.scenes import make_app
from tests.waiting import eventually
from tests.workers import WorkerProcess, Workers

pytestmark = pytest.mark.process

APPLICATION = """
import asyncio
import sys
from shop import app


async def main():
    async with app.worker(concurrency=4):
        print("ready", flush=True)
        if sys.argv[1] == "cancel":
            asyncio.get_running_loop().call_later(0.5, asyncio.current_task().cancel)
        await asyncio.Event().wait()


try:
    asyncio.run(main())
except (KeyboardInterrupt, asyncio.CancelledError) as error:
    print("ended by", type(error).__name__, flush=True)
"""


def start(workers: Workers, how: str) -> WorkerProcess:
    workers.write_module(MODULE)
    workers.write_module(APPLICATION, "application")
    env = {"PENSTOCK_TEST_DIARY": str(workers.folder / "diary"), "PENSTOCK_SHUTDOWN_TIMEOUT": "0.2"}
    program = workers.python("application.py", how, env=env)
    eventually(lambda: "ready" in program.log)
    return program


@pytest.mark.one_database
@pytest.mark.parametrize(("how", "ended"), [("ctrl-c", "KeyboardInterrupt"), ("cancel", "CancelledError")])
def test_an_application_ends_and_its_worker_gives_the_work_back(
    worker_process: Workers, database_url: str, how: str, ended: str
) -> None:
    app = make_app(database_url)
    jobs = app.tasks["forever"].enqueue_many([()] * 6)
    program = start(worker_process, how)
    diary = Path(worker_process.folder / "diary")
    eventually(lambda: diary.exists() and len(diary.read_text().splitlines()) == 4)
    if how == "ctrl-c":
        program.send(signal.SIGINT)
    assert program.wait() == 0
    assert f"ended by {ended}" in program.log
    assert "Traceback" not in program.log
    assert {job.status for job in jobs} == {"available"}
    assert rows(app, "SELECT id FROM {processes}") == rows(app, "SELECT token FROM {claims}") == []
    outcomes = [attempt.outcome for job in jobs for attempt in job.attempts()]
    assert set(outcomes) == {"released"}
    assert all(job.cancel() for job in jobs)
    recover(app)
    check(app, every_claim_recorded=False)


DESERTED = """
import asyncio
import sys
import threading
import time
from pathlib import Path
from penstock.telemetry import logs
from shop import app

logs.configure("info", "text")
logs.attach(app.events)
diary = Path(sys.argv[2])


async def main():
    await app.worker(concurrency=4).start()
    while not diary.exists() or len(diary.read_text().splitlines()) < 4:
        await asyncio.sleep(0.01)


loop = asyncio.new_event_loop()
loop.run_until_complete(main())
tasks = asyncio.all_tasks(loop)
loop.close()
print("closed", flush=True)
while sys.argv[1] == "stay" and any(one.name == "penstock-heartbeat" for one in threading.enumerate()):
    time.sleep(0.01)
"""


@pytest.mark.one_database
@pytest.mark.parametrize("how", ["exit", "stay"])
def test_an_application_closes_its_loop_and_ends(
    worker_process: Workers, database_url: str, how: str
) -> None:
    """Its worker is not stopped, nor are its tasks cancelled: it does not keep the program, nor the jobs."""
    app = make_app(database_url)
    jobs = app.tasks["forever"].enqueue_many([()] * 6)
    worker_process.write_module(MODULE)
    worker_process.write_module(DESERTED, "deserted")
    diary = worker_process.folder / "diary"
    program = worker_process.python("deserted.py", how, str(diary), env={"PENSTOCK_TEST_DIARY": str(diary)})
    assert program.wait() == 0
    assert program.log.count("was closed under its worker") == (how == "stay")
    assert len([line for line in program.log.splitlines() if "penstock" in line.lower()]) < 20
    if how == "stay":
        assert [job.status for job in jobs] == ["available"] * 6
        assert [job.attempts()[-1].outcome for job in jobs if job.attempts()] == ["released"] * 4
