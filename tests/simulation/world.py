"""The world of one schedule: virtual time, one order of events, and a scheduler that draws everything from one seed.

At every step the scheduler picks a fiber that can go on and lets it run to its next place; before that it may hurt
a process. Nothing here reads a real clock or real randomness: the same seed gives the same world.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from greenlet import getcurrent

from penstock.telemetry.fault_points import SimulatedCrash
from tests.simulation.fibers import NEVER, TIME, TURN, Fiber, Need, Owner
from tests.simulation.turning import turn_to

START = 1_800_000_000_000_000
"""When every schedule begins, in microseconds."""
SECOND = 1_000_000
LOOKED_AFTER = 4
"""Every so many steps the hosts are looked after, also when it is calm."""


class Nemesis(Protocol):
    """Who hurts: asked before every step."""

    calm: bool
    """No trouble any more."""
    loses: bool
    """Processes stand still at awaits and hand-overs: ask at each."""

    def act(self, world: World) -> None: ...

    def linger(self, world: World, fiber: Fiber, point: str) -> None:
        """At a named point that is no statement."""

    def lose(self, world: World, fiber: Fiber, place: Callable[[], str]) -> None:
        """At an await or a hand-over."""


class Stuck(Exception):
    """No fiber can go on, or it takes too long."""


@dataclass(slots=True)
class World:
    """Time, chance, fibers, and what happened."""

    seed: int
    rng: random.Random = field(init=False)
    now: int = START
    calm_at: int = START
    """When the trouble ended."""
    hub: object = field(default_factory=getcurrent)
    harness: Owner = field(default_factory=Owner)
    fibers: list[Fiber] = field(default_factory=list)
    current: Fiber | None = None
    last: Fiber | None = None
    stickiness: float = 0.0
    """How likely a fiber goes on at a place where it could be held up."""
    nemesis: Nemesis | None = None
    history: list[tuple[object, ...]] = field(default_factory=list)
    trace: list[tuple[object, ...]] = field(default_factory=list)
    """The history and more: what a person who looks for the cause wants to see."""
    places: set[str] = field(default_factory=set)
    """Where a process was struck down."""
    losses: set[str] = field(default_factory=set)
    """Where a process stood still that was taken for dead meanwhile."""
    steps: int = 0
    loops: list[Any] = field(default_factory=list)
    """Every event loop that was ever turned here."""
    running: Any = None
    """The event loop of the fiber that runs, as asyncio knows it."""
    definitions: dict[str, Any] = field(default_factory=dict)
    """Pipelines that were declared in this schedule: what one host has built, the others need not build again."""
    locks: list[Any] = field(default_factory=list)
    """Every `app.lock()` that was ever asked for."""
    doomed: list[Owner] = field(default_factory=list)
    died: list[str] = field(default_factory=list)
    """Threads that ended with an error, which none of ours ever may."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    # for the harness

    def spawn(self, name: str, body: Callable[[], object], owner: Owner | None = None) -> Fiber:
        if owner is None:
            owner = self.current.owner if self.current is not None else self.harness
        fiber = Fiber(self, owner, name, body)
        self.fibers.append(fiber)
        return fiber

    def run(self, until: Callable[[], bool], most_steps: int) -> None:
        """Let things happen until it is enough."""
        last_step = self.steps + most_steps
        while not until():
            if self.steps >= last_step:
                raise Stuck(f"not over after {most_steps} steps")
            self.step()

    def run_for(self, steps: int) -> None:
        """Let so many things happen."""
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        self.steps += 1
        nemesis = self.nemesis
        if nemesis is not None and not (nemesis.calm and self.steps % LOOKED_AFTER):
            nemesis.act(self)
        now = self.now
        ready = [
            fiber
            for fiber in self.fibers
            if (now >= fiber.deadline or fiber.need.flag) and now >= fiber.stalled and not fiber.owner.frozen
        ]
        if not ready:
            self._advance()
            return
        random = self.rng.random
        fiber = ready[0] if len(ready) == 1 else ready[int(random() * len(ready))]
        self.now = now + 50 + int(random() * 2000)
        fiber.need, fiber.deadline = TURN, 0
        self.current = self.last = fiber
        if fiber.loop is not self.running:
            self.turn_to(fiber.loop)
        if (begun := fiber.greenlet) is not None:
            begun.switch()
        else:
            fiber.begin()
        self.current = None
        if self.doomed or fiber.over:
            self._bid_farewell(fiber)

    def turn_to(self, loop: Any) -> None:
        """This is the loop that turns now; None: no loop does."""
        before, self.running = self.running, loop
        turn_to(before, loop)

    def _bid_farewell(self, fiber: Fiber) -> None:
        """A fiber has ended with this step: one that it has killed, or itself."""
        while self.doomed:
            self.bury(self.doomed.pop())
        if fiber.over and fiber in self.fibers:
            self.fibers.remove(fiber)
            if fiber.error is not None:
                self.note(fiber.label, f"ended by {fiber.error!r}")
                self.died.append(f"{fiber.label}: {fiber.error!r}")

    def _advance(self) -> None:
        """No fiber can go on now: let time pass until one can."""
        due = NEVER
        for fiber in self.fibers:
            when = fiber.stalled
            if when < fiber.deadline and not fiber.need.flag:
                when = fiber.deadline
            if when < due and not fiber.owner.frozen:
                due = when
        if due >= NEVER:
            if self.nemesis is None:
                raise Stuck("every fiber waits for ever")
            due = self.now + SECOND
        self.now = max(due, self.now + 1)

    def is_at(self, thread: Any, point: str) -> bool:
        """This thread has come to that place, and waits only for its turn."""
        fiber = thread.fiber if thread is not None else None
        return fiber in self.fibers and fiber.need is TURN and fiber.point == point

    def bury(self, owner: Owner) -> None:
        """End all fibers of a host, for good."""
        owner.alive = False
        if self.current is not None:
            self.doomed.append(owner)  # only the hub can unwind others; the caller's own end comes by itself
            return
        dead = [fiber for fiber in self.fibers if fiber.owner is owner]
        self.fibers = [fiber for fiber in self.fibers if fiber.owner is not owner]
        for fiber in dead:
            self.current = fiber
            self.turn_to(fiber.loop)
            fiber.end()
        self.current = None

    def end(self) -> None:
        """It is over: what is left is the history, for the reader."""
        for loop in self.loops:
            loop.abandon()
        self.fibers, self.loops, self.doomed = [], [], []
        self.last = self.nemesis = None
        self.definitions, self.locks = {}, []

    # for fibers

    def wait(self, need: Need, timeout: float | None) -> None:
        """Until it is there or time is up."""
        fiber = self.current
        if fiber is None or not fiber.owner.alive:
            fiber = self.here()
        fiber.need = need
        fiber.deadline = NEVER if timeout is None else self.now + int(timeout * SECOND)
        self.hub.switch()  # type: ignore[attr-defined]
        if not fiber.owner.alive:
            raise SimulatedCrash(fiber.point)

    def sleep(self, seconds: float) -> None:
        self.wait(TIME, seconds)

    def give_way(self, point: str) -> None:
        """A place where another fiber may go first, or where this one may end."""
        fiber = self.current
        if fiber is None or not fiber.owner.alive:
            fiber = self.here()
        fiber.point = point
        if (self.stickiness == 1.0 or self.rng.random() < self.stickiness) and not self._is_held(fiber):
            self.now += 50
            return
        self.hub.switch()  # type: ignore[attr-defined]
        if not fiber.owner.alive:
            raise SimulatedCrash(point)

    def _is_held(self, fiber: Fiber) -> bool:
        """It was held up at this very place."""
        return fiber.stalled > self.now or fiber.owner.frozen

    def here(self) -> Fiber:
        fiber = self.current
        if fiber is None:
            raise AssertionError("only a fiber can wait")
        if not fiber.owner.alive:
            raise SimulatedCrash(fiber.point)
        return fiber

    # what happened

    def note(self, who: str, *what: object) -> None:
        self.trace.append((self.now, who, *what))

    def record(self, kind: str, *facts: object) -> None:
        """For the checker; a dead host's last words do not count."""
        fiber = self.current
        if fiber is not None and not fiber.owner.alive:
            return
        entry = (self.now, fiber.label if fiber is not None else "harness", kind, *facts)
        self.history.append(entry)
        self.trace.append(entry)
