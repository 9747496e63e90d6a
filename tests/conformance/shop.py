"""Tasks that a fresh process can import: what `executor="process"` needs."""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from threading import Event

import penstock
from penstock import Penstock
from penstock.middleware import HandlerCall
from tests.waiting import eventually

app = Penstock(os.environ["PENSTOCK_TEST_SHOP_URL"], executor_processes=2, heartbeat_interval=0.05)


@app.task(executor="process")
def render(pages: int) -> dict[str, int]:
    return {"pages": pages, "pid": os.getpid()}


@app.task(executor="process", retries=0)
def fail() -> None:
    raise LookupError("no such report")


@app.task(executor="process", max_crashes=1)
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(executor="process", timeout=0.3, retries=0)
def hang() -> None:
    penstock.current().progress(0.5, str(os.getpid()))
    Event().wait()


@app.task(executor="process")
def wait() -> None:
    penstock.current().progress(0.5, str(os.getpid()))
    Event().wait()


@app.task(executor="process", retries=0, max_crashes=0)
def sit(folder: str) -> None:
    """Leaves a trace, and goes on until it is killed."""
    Path(folder, penstock.current().id).touch()
    Event().wait()


@app.task(executor="process")
def know() -> dict[str, object]:
    job = penstock.current()
    job.progress(0.5, "half")
    once = job.once("pid", os.getpid)
    return {"id": job.id, "attempt": job.attempt, "once": once == os.getpid()}


@app.task(executor="process")
def pay() -> str:
    job = penstock.current()
    with job.transaction() as connection:
        connection.exec_driver_sql("SELECT 1")
        job.complete("receipt")
    return "ignored"


@app.task(executor="process", retries=0, max_crashes=0, timeout=20)
def leave_behind(how: str, folder: str) -> None:
    """Leaves a process in the background, which has inherited all that this one has, and dies or hangs."""
    Path(folder, "helper").write_text(str(_helper(how)))
    if "die" in how:
        os.kill(os.getpid(), signal.SIGKILL)
    Event().wait()


def _helper(how: str) -> int:
    if how.startswith("fork"):
        child = os.fork()
        if child == 0:
            Event().wait(300)
            os._exit(0)
        return child
    # As a program in C would start it: with every handle that is open.
    for handle in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            os.set_inheritable(int(handle), True)
    return subprocess.Popen(["sleep", "300"], close_fds=False).pid


def twice(function: Callable[[int], int]) -> Callable[[int], int]:
    @wraps(function)
    def doubled(number: int) -> int:
        return function(number) * 2

    return doubled


class Adder:
    def __init__(self, number: int) -> None:
        self.number = number

    def add(self, number: int) -> int:
        return self.number + number


def same(number: int) -> int:
    return number


doubled = app.task(name="doubled", executor="process")(twice(same))
added = app.task(name="added", executor="process")(Adder(5).add)
as_is = app.task(name="as_is", executor="process")(same)


@app.task
async def on_loop() -> int:
    return os.getpid()


@app.task
def in_thread() -> int:
    return os.getpid()


def gone(pid: int) -> bool:
    """Whether a process has ended, waiting for it a little."""

    def look() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    return eventually(look)


TENANT: ContextVar[str] = ContextVar("tenant", default="")


def told(call: HandlerCall) -> Iterator[None]:
    """A middleware that a fresh process can import: a context for the handler, and a mark on its result."""
    TENANT.set(call.headers.get("tenant", "nobody's"))
    yield
    call.result = f"{call.result} ({call.task.rpartition('.')[2]}, attempt {call.attempt}, {call.arguments})"


async def awaiting(call: HandlerCall) -> AsyncIterator[None]:
    await asyncio.sleep(0)
    TENANT.set(f"{TENANT.get()}, twice")
    try:
        yield
    except LookupError as error:
        await asyncio.sleep(0)
        raise ValueError("translated") from error


@app.task(executor="process", middleware=[told, awaiting], retries=0)
def tell_process(number: int) -> str:
    if number == 0:
        raise LookupError("nothing")
    return f"{TENANT.get()} in {'here' if os.getpid() == number else 'a process'}"


@app.task(middleware=[told, awaiting], retries=0)
def tell_thread(number: int) -> str:
    if number == 0:
        raise LookupError("nothing")
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise AssertionError("a handler in a thread finds a loop that runs")
    return asyncio.run(_tell())


@app.task(middleware=[told, awaiting], retries=0)
async def tell_loop(number: int) -> str:
    if number == 0:
        raise LookupError("nothing")
    return await _tell()


async def _tell() -> str:
    return TENANT.get()
