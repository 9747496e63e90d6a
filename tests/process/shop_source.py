"""The application that supervised workers run in these tests. Handlers wait for files that the test writes."""

SHOP = '''
import asyncio
import os
import time

from penstock import Penstock, current
from penstock.runtime.supervisor import worker_process as serve, supervisor

supervisor.OVERTIME = serve.OVERTIME = float(os.environ.get("PENSTOCK_TEST_OVERTIME", "10"))
supervisor.FINAL_CLEANUP = float(os.environ.get("PENSTOCK_TEST_LAST_RITES", "10"))
app = Penstock(
    heartbeat_interval=0.3,
    reap_after=3,
    housekeeping_interval=0.2,
    poll_interval=0.1,
    shutdown_timeout=float(os.environ.get("PENSTOCK_TEST_SHUTDOWN", "1")),
)


def begin() -> None:
    """Let the test see that the handler runs, in which attempt."""
    with open(f"began-{current().id}-{current().attempt}", "w"):
        pass


@app.task
async def quick(number: int) -> int:
    return number


@app.task
async def nap(number: int) -> int:
    await asyncio.sleep(0.2)
    return number


@app.task
async def hold(path: str) -> str:
    """Run until the file is there."""
    begin()
    while not os.path.exists(path):
        await asyncio.sleep(0.01)
    return "done"


@app.task
def hold_in_thread(path: str) -> str:
    begin()
    while not os.path.exists(path):
        time.sleep(0.01)
    return "done"


@app.task(executor="process")
def hold_in_process(path: str) -> str:
    begin()
    while not os.path.exists(path):
        time.sleep(0.01)
    return "done"


@app.task
async def block(path: str) -> str:
    """Hold the event loop itself: what no handler should do."""
    begin()
    while not os.path.exists(path):
        time.sleep(0.01)
    return "done"


@app.task(max_crashes=2)
def die() -> None:
    os.kill(os.getpid(), 9)
'''
