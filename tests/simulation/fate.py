"""Fate: what goes wrong in a schedule, drawn from its seed.

Each seed has a temper of its own: some kinds of trouble are off, others frequent, so that rare combinations meet.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.simulation import losses, poison
from tests.simulation.fibers import Fiber
from tests.simulation.hosts import Host, WorkerHost
from tests.simulation.interruptions import APART, interrupt
from tests.simulation.machines import SETTINGS
from tests.simulation.server import Faults
from tests.simulation.temper import Temper
from tests.simulation.wire import Disconnected, Wire
from tests.simulation.world import LOOKED_AFTER, SECOND, World

ENOUGH = 2
SELDOM_SEEN = 6
"""Places that are not at a statement are come to so much less often."""
REAP_AFTER = int(SETTINGS["reap_after"] * SECOND)
KINDS = (
    *("crash", "restart", "freeze", "thaw", "stall", "stop", "hurried stop", "clock jump", "delay", "outage"),
    *("late claim", "interruption", "lease lost"),
    *("statement locked", "statement cut", "statement readonly"),
    *("commit refused", "commit lost", "commit unanswered", "hint", "hint lost"),
)
"""Everything that can go wrong."""


@dataclass(slots=True)
class Fate(Faults):
    """Strikes hosts, wires and clocks until it is calmed."""

    temper: Temper
    hosts: list[Host]
    revive: Callable[[Host], Host | None]
    """A new process where one died; None if none is needed."""
    calm: bool = False
    closing: bool = False
    """No process is started any more."""
    away_until: int = 0
    strikes: bool = field(init=False)
    interrupts: bool = field(init=False)
    loses: bool = field(init=False)
    struck: Counter[str] = field(default_factory=Counter)
    """How often each kind of trouble has really happened."""
    strange: set[str] = field(default_factory=set)
    """What workers were seen to look at that cannot be."""

    def __post_init__(self) -> None:
        self.strikes = self.temper.statement > 0
        self.interrupts = self.temper.interrupt > 0
        self.loses = self.temper.loss > 0

    def act(self, world: World) -> None:
        if not world.steps % LOOKED_AFTER:
            self._look_after(world)
        if self.temper.poison:
            self.strange.update(poison.strange_lanes(self.hosts))
        if self.calm:
            return
        if self.temper.poison and world.rng.random() < self.temper.poison:
            self._poison(world)
        draw = world.rng.random()
        if draw < self.temper.any:
            for kind, rate in self._strikes():
                if draw < rate:
                    kind(world)
                    return
                draw -= rate

    def _poison(self, world: World) -> None:
        server = self.hosts[0].machine.dialect.server
        if server.holder is None:
            kind = poison.poison(world.rng, server.connection, world.now, self.hosts)
            self.struck[f"poisoned {kind}"] += 1
            world.record("poisoned", kind)

    def _strikes(self) -> Iterator[tuple[Callable[[World], None], float]]:
        temper = self.temper
        yield self._crash, temper.crash
        yield self._freeze, temper.freeze
        yield self._stall, temper.stall
        yield self._stop, temper.stop
        yield self._jump, temper.jump
        yield self._delay, temper.delay
        yield self._outage, temper.outage
        yield self._arrive_late, temper.late

    def _look_after(self, world: World) -> None:
        for index, host in enumerate(self.hosts):
            if host.frozen and losses.is_over(world, host, self.calm):
                self.struck["thaw"] += 1
                if losses.was_real(world, host):
                    self.struck["lease lost"] += 1
                host.thaw()
                self._come_to(world, host)
            if host.gone and host.alive:
                host.machine.shut()
                world.bury(host)
            if not host.alive and self._is_missed(world, host) and (new := self.revive(host)) is not None:
                self.hosts[index] = new
                self.struck["restart"] += 1

    def _come_to(self, world: World, host: Host) -> None:
        """The threads of a process that was stopped come to one by one: the first knows nothing yet."""
        mine = [fiber for fiber in world.fibers if fiber.owner is host]
        if not self.calm and mine and world.rng.random() < 0.7:
            self._hold_up(world, world.rng.choice(mine))

    def _is_missed(self, world: World, dead: Host) -> bool:
        """By and by every process is started again; once it is calm, two workers are enough."""
        if not self.calm:
            return world.rng.random() < 0.12
        if self.closing:
            return False
        if not isinstance(dead, WorkerHost):
            return True
        return sum(host.alive and isinstance(host, WorkerHost) for host in self.hosts) < ENOUGH

    def _victim(self, world: World) -> Host | None:
        """Often the one that has just moved: it is in the middle of something."""
        alive = [host for host in self.hosts if host.alive and not host.frozen]
        if world.last is not None and world.last.owner in alive and world.rng.random() < 0.6:
            return world.last.owner
        return world.rng.choice(alive) if alive else None

    def _crash(self, world: World) -> None:
        if (host := self._victim(world)) is not None:
            self._die(world, host, world.last.point if world.last and world.last.owner is host else None)

    def _die(self, world: World, host: Host, place: str | None) -> None:
        self.struck["crash"] += 1
        if place is not None:
            world.places.add(place)
        host.crash()

    def _freeze(self, world: World) -> None:
        if (host := self._victim(world)) is not None:
            self.struck["freeze"] += 1
            host.freeze(int(REAP_AFTER * world.rng.choice([0.01, 0.3, 1.1, 2.0])))

    def lose(self, world: World, fiber: Fiber, place: Callable[[], str]) -> None:
        """At an await or a hand-over: its process stands still until others take it for dead, and then goes on."""
        if losses.stand_still(world, self.hosts, fiber.owner, self.temper.loss, place):
            self.struck["freeze"] += 1

    def _stall(self, world: World) -> None:
        """One thread does not get on while the others of its process do."""
        if not world.fibers:
            return
        self._hold_up(world, world.rng.choice(world.fibers))

    def linger(self, world: World, fiber: Fiber, point: str) -> None:
        """At a place between two things that belong together, such as a commit and what is made of it."""
        if self.calm:
            return
        if self.loses:
            self.lose(world, fiber, lambda: point)
        draw, owner = world.rng.random(), fiber.owner
        often = 1 if point.endswith(".committed") else SELDOM_SEEN
        if draw < often * self.temper.crash and isinstance(owner, Host):
            self._die(world, owner, point)
        if draw >= self.temper.linger:
            return
        if point == "hand_over" and world.rng.random() < 0.5:
            # Or who is handed something does not take it up.
            fiber = next((other for other in world.fibers if other.loop is fiber.owner.loop), fiber)  # type: ignore[attr-defined]
        self._hold_up(world, fiber)

    def _hold_up(self, world: World, fiber: Fiber) -> None:
        self.struck["stall"] += 1
        seconds = world.rng.choice([0.05, 0.5, 1.2, 2.0]) * REAP_AFTER / SECOND
        fiber.stalled = world.now + int(seconds * SECOND)
        world.note(fiber.label, f"stalls for {seconds:.1f} s")
        server = self.hosts[0].machine.dialect.server
        if server.opener is fiber and server.holder is not None:
            server.holder.cut()

    def _stop(self, world: World) -> None:
        host = self._victim(world)
        if isinstance(host, WorkerHost) and host.worker is not None and not host.leaving:
            hurried = world.rng.random() < 0.3
            self.struck["hurried stop" if hurried else "stop"] += 1
            host.stop(hurried)

    def _jump(self, world: World) -> None:
        if (host := self._victim(world)) is not None:
            self.struck["clock jump"] += 1
            host.skew += int(world.rng.choice([1, 60, 3600]) * SECOND)
            world.record("jumped", host.name)

    def _delay(self, world: World) -> None:
        self.struck["delay"] += 1
        micros = int(REAP_AFTER * world.rng.choice([0.02, 0.2, 1.2]))
        world.record("delayed", micros)
        world.now += micros

    def _outage(self, world: World) -> None:
        """The database is away, for all processes."""
        self.struck["outage"] += 1
        micros = int(REAP_AFTER * world.rng.choice([0.1, 0.6, 1.3]))
        self.away_until = world.now + micros
        world.record("outage", self.away_until)
        for host in self.hosts:
            host.machine.dialect.cut_all()

    def _arrive_late(self, world: World) -> None:
        """A claim that its sender has given up for lost, and forgotten."""
        host = self._victim(world)
        if isinstance(host, WorkerHost) and host.worker is not None:
            self.struck["late claim"] += 1
            world.note(host.name, "is given something that it had asked for once")
            world.spawn("late claim", host.claim_late, world.harness)

    def calm_down(self, world: World) -> None:
        """No more trouble; from now on everything has to come to its end, by polling alone."""
        self.calm = (
            True  # an outage that is under way lasts as long as it lasts: what comes after it is the point
        )
        self.strikes = self.interrupts = self.loses = False
        world.calm_at = world.now
        world.stickiness = 1.0
        for fiber in world.fibers:
            fiber.stalled = 0
            if "/handler" in fiber.label:
                fiber.deadline = min(fiber.deadline, world.now + SECOND)
        world.note("harness", "calm")

    # on the wire

    def statement(self, wire: Wire) -> Exception | None:
        if wire.server.world.now < self.away_until:  # type: ignore[union-attr]
            return Disconnected()
        if self.calm or not self.temper.statement:
            return None
        rng = wire.server.world.rng  # type: ignore[union-attr]
        if rng.random() >= self.temper.statement:
            return None
        kind = rng.choice(["locked", "locked", "cut", "readonly"])
        self.struck[f"statement {kind}"] += 1
        self._note(wire, f"{kind} at {wire.server.world.here().point}")  # type: ignore[union-attr]
        if kind == "cut":
            return Disconnected()
        return sqlite3.OperationalError(
            "database is locked" if kind == "locked" else "attempt to write a readonly database"
        )

    def commit(self, wire: Wire) -> str:
        rng = wire.server.world.rng  # type: ignore[union-attr]
        if self.calm or rng.random() >= self.temper.commit:
            return "passes"
        fate: str = rng.choice(["refused", "lost", "unanswered"])
        self.struck[f"commit {fate}"] += 1
        self._note(wire, f"commit {fate}")
        return fate

    def interrupt(self, world: World) -> None:
        fiber = world.here()
        apart = not self.calm and fiber.label.endswith(APART)
        if apart and isinstance(fiber.owner, Host) and world.rng.random() < self.temper.interrupt:
            self.struck["interruption"] += 1
            world.note(fiber.label, f"is not waited for any longer at {fiber.point}")
            interrupt(world, fiber.owner)

    def committed(self, world: World) -> None:
        """Hints: another process sees that something was written. Correctness may not rest on it."""
        if self.calm:
            return
        for host in self.hosts:
            if isinstance(host, WorkerHost):
                heard = world.rng.random() < self.temper.hints
                self.struck["hint" if heard else "hint lost"] += 1
                if heard:
                    host.hear()

    def _note(self, wire: Wire, what: str) -> None:
        world = wire.server.world
        assert world is not None
        world.note(world.here().label, what)
