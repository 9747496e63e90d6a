"""Threads that only move when the world lets them: greenlets with a reason to wait.

A fiber runs until it reaches a place where something could happen (a statement, a commit, a hand-over, a wait) and
then gives the word back. So there is exactly one order of events per seed, and everything in between is atomic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Set
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol

from greenlet import getcurrent, greenlet

from penstock.telemetry.fault_points import SimulatedCrash

if TYPE_CHECKING:
    from tests.simulation.world import World

NEVER = 1 << 62


class Need(Protocol):
    """What a fiber waits for. The scheduler looks at all of them at every step: it reads, and calls no fiber."""

    @property
    def flag(self) -> object:
        """True once it is there."""


class Turn:
    """Only its turn."""

    flag = True


class Time:
    """Nothing but the time."""

    flag = False


class Asked:
    """What is known only by asking."""

    __slots__ = ("ask",)

    def __init__(self, ask: Callable[[], object]) -> None:
        self.ask = ask

    @property
    def flag(self) -> object:
        return self.ask()


TURN, TIME = Turn(), Time()


class Owner:
    """The owner of fibers: a host. A dead one's fibers never run again; a frozen one's wait."""

    name = "harness"
    alive = True
    frozen = False
    skew = 0
    """By how many microseconds its own clocks are off."""

    def clock(self, world: World) -> int:
        return world.now + self.skew


class Fiber:
    """One thread of a host."""

    __slots__ = (
        "body",
        "deadline",
        "error",
        "greenlet",
        "label",
        "loop",
        "need",
        "over",
        "owner",
        "point",
        "stalled",
        "world",
    )

    def __init__(self, world: World, owner: Owner, name: str, body: Callable[[], object]) -> None:
        self.world = world
        self.owner = owner
        self.label = f"{owner.name}/{name}"
        self.body = body
        self.greenlet: Any = None
        """Where it runs, once it has begun."""
        self.need: Need = TURN
        self.deadline = 0
        self.stalled = 0
        """Until then it does not get the processor, whatever it waits for."""
        self.loop: Any = None
        """The event loop that it turns, if it does."""
        self.point = ""
        self.over = False
        self.error: BaseException | None = None

    def begin(self) -> None:
        """Let it run to its first place. From there on the scheduler switches to its greenlet."""
        self.greenlet = _idle.pop() if _idle else greenlet(_serve, parent=self.world.hub)
        self.greenlet.switch(self)

    def run(self) -> None:
        try:
            self.body()
        except SimulatedCrash:
            pass
        except BaseException as error:
            self.error = error
        self.over = True

    def end(self) -> None:
        """The process is dead: unwind, and let nothing come of it."""
        if not self.over:
            self.over = True
            if self.greenlet is not None:
                self.greenlet.throw(SimulatedCrash(self.point))


_idle: list[Any] = []
"""Greenlets that have run a fiber to its end. To make one costs more than most fibers do in their lives."""


def _serve(fiber: Fiber | None) -> None:
    """The body of a greenlet: one fiber after the other, each as if it were the first."""
    here = getcurrent()
    while fiber is not None:
        Context().run(fiber.run)
        fiber = None  # what it leads to may be collected while this one waits
        _idle.append(here)
        fiber = here.parent.switch()


class Event:
    """`threading.Event` for fibers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.flag = False

    def is_set(self) -> bool:
        return self.flag

    def set(self) -> None:
        self.flag = True

    def clear(self) -> None:
        self.flag = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self.flag:
            self.world.wait(self, timeout)
        return self.flag


class Lock:
    """`threading.Lock` for fibers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.held = False

    def acquire(self, timeout: float | None = None) -> bool:
        if self.held:
            self.world.wait(Asked(lambda: not self.held), timeout)
            if self.held:
                return False
        self.held = True
        return True

    def release(self) -> None:
        self.held = False

    def __enter__(self) -> None:
        if self.held:
            self.acquire()
        self.held = True

    def __exit__(self, *_: object) -> None:
        self.held = False


class Queue:
    """`queue.SimpleQueue` for fibers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.flag = self.items = deque[Any]()

    def put(self, item: object) -> None:
        self.items.append(item)

    def get(self) -> Any:
        while not self.items:
            self.world.wait(self, None)
        return self.items.popleft()


class Thread:
    """`threading.Thread` for fibers: it belongs to the host on which it was started."""

    def __init__(self, world: World, target: Callable[[], object], name: str) -> None:
        self.world = world
        self.target = target
        self.name = name.removeprefix("penstock-")
        self.fiber: Fiber | None = None

    def start(self) -> None:
        self.fiber = self.world.spawn(self.name, self.target)

    def is_alive(self) -> bool:
        return self.fiber is not None and not self.fiber.over

    def join(self, timeout: float | None = None) -> None:
        self.world.wait(Asked(lambda: not self.is_alive()), timeout)


class Waker:
    """`penstock.runtime.pump.waker.Waker` for fibers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.flag = False
        self.subjects: dict[str, None] = {}
        """In the order in which they were told: that of a set is another in every process."""

    def wake(self, subject: str | None = None) -> None:
        self.flag = True
        if subject is not None:
            self.subjects[subject] = None

    def wait(self, timeout: float) -> Set[str]:
        if not self.flag:
            self.world.wait(self, timeout)
        self.flag = False
        subjects, self.subjects = self.subjects, {}
        return subjects.keys()

    def close(self) -> None:
        """Nothing was opened."""
