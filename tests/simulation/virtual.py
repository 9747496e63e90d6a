"""Putting the package into a virtual world: its time, its chance, its threads and its event loop.

The package reads clocks and randomness through the modules `time`, `random`, `secrets` and `os.urandom`, and starts
threads through `threading`, `queue` and `asyncio`. Each module of the package that knows such a name gets another
thing under that name, for as long as simulations run. Production code needs no seam for it and pays nothing.
"""

from __future__ import annotations

import asyncio
import pkgutil
import random
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import FunctionType, SimpleNamespace
from typing import Any

from sqlalchemy import Engine

import penstock
from penstock.database.transaction import Transaction
from penstock.pipelines.advance.expand import Advancer
from penstock.reconcile.reconciler import Reconciler
from penstock.reconcile.statements import Fetch
from penstock.runtime.executors.dispatcher import Dispatcher
from penstock.runtime.liveness import host_identity
from penstock.runtime.reconcilers import row_source
from penstock.telemetry import fault_points
from penstock.values import failure, ids
from tests.simulation import fibers
from tests.simulation.loops import SHORTEST_SLEEP, Answer, Loop, Pool
from tests.simulation.world import SECOND, World

CONCURRENT = ("penstock.runtime.", "penstock.reconcile.row_lock", "penstock.job")
"""Only there threads wait and are made."""
SLOWER = {
    "penstock.runtime.liveness.heartbeat": {"LOOK_INTERVAL": 3.0},
    "penstock.runtime.reconcilers.row_pump": {"FIRST_DELAY": 1.0, "LONGEST_DELAY": 4.0},
    "penstock.runtime.reconcilers.row_services": {"SWEEP_INTERVAL": 40.0, "TALLY_INTERVAL": 30.0},
    "penstock.runtime.worker": {"WATCH_INTERVAL": 5.0, "SHORTEST_POLL": 1.5},
}
"""Loops that only look around do so less often, or most of a schedule would be that."""
FEW = 2
"""So many elements of a large expand are written at a time, or a crash would never come between two chunks."""

Crew = Dispatcher[Any, Any]
world: World | None = None
"""The schedule that runs now."""
_ident = threading.get_ident


def here() -> World:
    assert world is not None, "no schedule is running"
    return world


class Time:
    """The module `time`, as the host sees it that runs now. Threads left over from elsewhere keep theirs."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()

    def monotonic(self) -> float:
        here = world
        if here is None or _ident() != self.thread:
            return time.monotonic()
        fiber = here.current
        return (here.now + fiber.owner.skew if fiber is not None else here.now) / SECOND

    perf_counter = time = monotonic

    def time_ns(self) -> int:
        return int(self.monotonic() * SECOND) * 1000

    def sleep(self, seconds: float) -> None:
        if threading.get_ident() == self.thread:
            here().sleep(seconds)
        else:
            time.sleep(seconds)


class Random:
    """The module `random`, drawn from the seed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(here().rng, name)


class Os:
    """The module `os` for those who make ids of noise."""

    def urandom(self, count: int) -> bytes:
        return here().rng.randbytes(count)


class Secrets:
    def randbits(self, count: int) -> int:
        return here().rng.getrandbits(count)


class Threading:
    """The module `threading` for services and executors."""

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)

    def Event(self) -> fibers.Event:
        return fibers.Event(here())

    def Lock(self) -> fibers.Lock:
        return fibers.Lock(here())

    def Thread(self, target: Callable[[], object], name: str, daemon: bool) -> fibers.Thread:
        return fibers.Thread(here(), target, name)


class Asyncio:
    """The module `asyncio`: as it is, on the loops of hosts, except where a thread waits for one."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        return asyncio.sleep(max(seconds, SHORTEST_SLEEP))

    def run_coroutine_threadsafe(self, coroutine: Coroutine[Any, Any, Any], loop: Loop) -> Answer:
        loop.coroutines.append(coroutine)
        return Answer(here(), asyncio.run_coroutine_threadsafe(coroutine, loop.as_loop))


class Fetches:
    """The statements of reconcilers, built once for all lives of a machine, as long as no mutant changes how."""

    def __init__(self) -> None:
        self.made: dict[tuple[Any, ...], Fetch] = {}

    def __call__(self, reconciler: Reconciler, engine: Engine) -> Fetch:
        code = tuple(made.__code__ for made in vars(Fetch).values() if isinstance(made, FunctionType))
        key = (reconciler.name, engine, code)
        if key not in self.made:
            self.made[key] = Fetch(reconciler, engine)
        return self.made[key]


@contextmanager
def virtual() -> Iterator[None]:
    """Everything in the package lives in the virtual world until this ends."""
    before: list[tuple[Any, str, Any]] = []

    def put(module: Any, name: str, value: object) -> None:
        before.append((module, name, getattr(module, name)))
        setattr(module, name, value)

    concurrent = {
        "asyncio": Asyncio(),
        "threading": Threading(),
        "queue": SimpleNamespace(SimpleQueue=lambda: fibers.Queue(here())),
        "Waker": lambda _ear: fibers.Waker(here()),
    }
    for module in _modules():
        if getattr(module, "time", None) is time:
            put(module, "time", Time())
        if getattr(module, "random", None) is random:
            put(module, "random", Random())
        if hasattr(module, "ThreadPoolExecutor"):
            put(module, "ThreadPoolExecutor", lambda *args, **kwargs: Pool(here(), *args, **kwargs))
        if module.__name__.startswith(CONCURRENT):
            for name, stand_in in concurrent.items():
                if hasattr(module, name):
                    put(module, name, stand_in)
        for name, value in SLOWER.get(module.__name__, {}).items():
            put(module, name, value)
    put(Advancer.__init__, "__defaults__", (FEW,))
    put(host_identity, "SHARED_MEMORY", None)  # hosts are machines: none sees the processes of another
    put(row_source, "Fetch", Fetches())
    put(failure, "traceback", SimpleNamespace(format_exception=lambda *error: [repr(error[1])]))
    put(ids, "os", Os())
    put(ids, "secrets", Secrets())
    put(ids, "_sequence", None)
    put(fault_points, "watched", True)
    put(fault_points, "reach", _reached)
    put(Transaction, "reach_statement", _comes_to_a_statement)
    put(Dispatcher, "give_up_running", _telling_of_the_ended(Dispatcher.give_up_running))
    try:
        yield
    finally:
        for module, name, value in reversed(before):
            setattr(module, name, value)


@contextmanager
def replaced(module: Any, names: Mapping[str, object]) -> Iterator[None]:
    """Other things under these names of a module, until the block ends."""
    before = {name: getattr(module, name) for name in names}
    for name, value in names.items():
        setattr(module, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


@contextmanager
def living_in(new: World) -> Iterator[None]:
    """This schedule is the one that runs."""
    global world  # noqa: PLW0603 - modules cannot be told otherwise
    before, world = world, new
    ids._sequence = ids._Sequence()
    try:
        yield
    finally:
        world = before
        new.turn_to(None)  # the next user of this process has loops of its own


def _reached(point: str) -> None:
    """A named point: statements come by the wire as well, the others are places of their own."""
    here = world
    if here is None or (fiber := here.current) is None:
        return
    if _is_a_place(point):
        if here.nemesis is not None and not here.nemesis.calm:
            here.nemesis.linger(here, fiber, point)
        here.give_way(point)
    else:
        fiber.point = point


def _comes_to_a_statement(tx: Transaction) -> None:
    """The same for statements, which are most of the points: they say where they are, and go by the wire."""
    tx._statements += 1
    if world is not None and (fiber := world.current) is not None:
        fiber.point = f"{tx._stage}.{tx._statements}"


def _telling_of_the_ended(give_up: Callable[[Crew], None]) -> Callable[[Crew], None]:
    """Who will not end when told to is given up on; a handler that has ended is none of them."""

    def told(crew: Crew) -> None:
        for work in crew.active.values():
            if work.handle is not None and work.handle.done():
                here().record("waited for nobody", work.name, work.id)
        give_up(crew)

    return told


@cache
def _is_a_place(point: str) -> bool:
    return point.endswith((".committed", "hand_over")) or point.startswith("execute.")


OUTSIDE = {
    f"penstock.{name}" for name in ("cli", "__main__", "dashboard", "django", "integrations", "pytest_plugin")
}
"""Parts that are not simulated; some need a framework that is set up before they are imported."""


def _modules() -> list[Any]:
    """All of the package, also what it would bring in only when it needs it: by then it would be too late."""
    for package in pkgutil.iter_modules(penstock.__path__, "penstock."):
        if package.name not in OUTSIDE:
            import_module(package.name)
            inside = getattr(sys.modules[package.name], "__path__", ())
            for module in pkgutil.walk_packages(inside, f"{package.name}."):
                import_module(module.name)
    return [module for name, module in sorted(sys.modules.items()) if name.startswith("penstock.")]
