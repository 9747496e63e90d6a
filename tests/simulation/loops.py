"""The event loop of a host: asyncio's own tasks, futures and timeouts, turned by a fiber on virtual time.

Only the turning is ours. Between two callbacks others may go first; while nothing is ready the fiber waits. A handler
that blocks the loop blocks it here too. `Pool` gives the loop its threads, which are fibers.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from tests.simulation.fibers import Asked

if TYPE_CHECKING:
    from tests.simulation.fibers import Owner
    from tests.simulation.world import World

SHORTEST_SLEEP = 0.1
"""Loops that ask every few milliseconds whether something is over do so less often, or a stop would be only that."""


class Loop:
    """`asyncio.AbstractEventLoop`, as much of it as tasks, futures and workers use."""

    def __init__(self, world: World, owner: Owner) -> None:
        self.as_loop = cast(asyncio.AbstractEventLoop, self)
        self.world = world
        self.owner = owner
        self.flag = self.ready = deque[asyncio.Handle]()
        self.timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self.coroutines: list[Coroutine[Any, Any, Any]] = []
        """All that were ever given to it."""
        self.pool = Pool(world)
        self.task: asyncio.Task[Any] | None = None
        """The one that it was left in."""
        self._count = 0
        world.loops.append(self)

    def run(self) -> None:
        """For ever, in a fiber of the host."""
        world, ready, timers = self.world, self.ready, self.timers
        world.here().loop = self
        world.turn_to(self)
        while True:
            while timers and timers[0][0] <= self.time():
                ready.append(heapq.heappop(timers)[2])
            if ready:
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
                    if (nemesis := world.nemesis) is not None and nemesis.loses:
                        nemesis.lose(world, world.here(), partial(_awaited, handle))
                    world.give_way("loop")
            else:
                world.wait(self, timers[0][0] - self.time() if timers else None)

    def abandon(self) -> None:
        """The process is over: what its tasks still had to say is not heard."""
        for coroutine in self.coroutines:
            with suppress(RuntimeError):  # it wants to wait for something while being closed
                coroutine.close()

    # what asyncio asks of a loop

    def time(self) -> float:
        return (self.world.now + self.owner.skew) / 1_000_000

    def call_soon(
        self, action: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(action, args, self.as_loop, context)
        self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_at(
        self, when: float, action: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, action, args, self.as_loop, context)
        self._count += 1
        heapq.heappush(self.timers, (when, self._count, timer))
        return timer

    def call_later(
        self, delay: float, action: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, action, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self.as_loop)

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **_: Any) -> asyncio.Task[Any]:
        self.coroutines.append(coroutine)
        return asyncio.Task(coroutine, loop=self.as_loop)

    def run_in_executor(self, pool: Any, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        return asyncio.wrap_future((pool or self.pool).submit(work, *args), loop=self.as_loop)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return not self.owner.alive

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What a callback raises is a thread's end that none of ours may have; what is only left over is not."""
        if "handle" in context and self.owner.alive:
            self.world.died.append(f"{self.owner.name}/loop: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        """It is passed over when its time comes."""


def _awaited(handle: asyncio.Handle) -> str:
    """The await at which a task has come to stand: the innermost that is the package's own."""
    task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    coroutine: Any = task.get_coro() if isinstance(task, asyncio.Task) and not task.done() else None
    place = "between two callbacks"
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        if frame.f_globals.get("__name__", "").startswith("penstock."):
            place = f"await in {frame.f_code.co_qualname}"
        coroutine = coroutine.cr_await
    return place


class Pool:
    """`concurrent.futures.ThreadPoolExecutor` with fibers."""

    def __init__(
        self, world: World, size: int | None = None, thread_name_prefix: str = "penstock-pool"
    ) -> None:
        self.world = world
        self.size = size or 32
        self.name = thread_name_prefix.removeprefix("penstock-")
        self.inbox: deque[Callable[[], None]] = deque()
        self.threads = 0

    def submit(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = work(*args, **kwargs)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.inbox.append(run)
        if self.threads < self.size:
            self.threads += 1
            self.world.spawn(self.name, self._serve)
        return future

    def _serve(self) -> None:
        while self.inbox:
            self.inbox.popleft()()
        self.threads -= 1

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self.inbox.clear()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class Answer:
    """What `run_coroutine_threadsafe` gives: waiting for it holds up the fiber, not the world."""

    def __init__(self, world: World, future: Future[Any]) -> None:
        self.world = world
        self.future = future

    def result(self, timeout: float | None = None) -> Any:
        if not self.future.done():
            self.world.wait(Asked(self.future.done), timeout)
        if not self.future.done():
            raise TimeoutError
        return self.future.result()
