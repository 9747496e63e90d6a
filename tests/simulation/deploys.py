"""Deploys: all workers are stopped in order, in the middle of their work or at its end. No worker keeps a claim."""

from __future__ import annotations

from typing import Any

from penstock.runtime.pump.pump import Pump
from penstock.runtime.worker import Worker
from tests.simulation.fate import Fate
from tests.simulation.hosts import WorkerHost
from tests.simulation.world import World

MOST_STEPS = 6000
MOMENT = 10_000
"""Microseconds in which a loop is told two things, before it does the first."""


class Deploys:
    """The stops of one schedule."""

    def __init__(self, world: World, fate: Fate) -> None:
        self.world = world
        self.fate = fate

    def in_the_middle(self) -> None:
        """A deploy while there is work to do, and nothing else goes wrong."""
        self.world.stickiness = self.world.rng.choice([0.2, 0.6])
        hurried = self.world.rng.random() < 0.5
        if hurried:
            # Best when a worker was just handed a claim, or is about to be, and has not begun with it.
            best = self.world.rng.choice([self._is_handed_over, self._is_about_to_be])
            enough = self.world.steps + 40
            self.world.run(lambda: self.world.steps >= enough or best(), 41)
            for fiber in self.world.fibers:
                if fiber.loop is not None:  # what its pump has for it comes right behind the stop
                    fiber.stalled = self.world.now + MOMENT
        stopped = self._stop_all(hurried=hurried)
        self.world.record("went home", [host.name for host in stopped if host.gone])
        self.world.stickiness = 1.0
        self.fate.closing = False

    def at_the_end(self) -> None:
        """All go home: nothing of theirs may be left."""
        self._stop_all(hurried=False)
        self.world.record("closed", [host.name for host in self.fate.hosts if host.gone])

    def _is_handed_over(self) -> bool:
        known = self.workers()
        crews: list[Any] = [runner.dispatcher for worker in known for runner in worker.rows.runners.values()]
        return any(crew.coming for crew in [*crews, *(worker.dispatcher for worker in known)])

    def _is_about_to_be(self) -> bool:
        """A worker has claimed a job, and the stop comes before the job is on the loop."""
        known = self.workers()
        rows = [runner.pump for worker in known for runner in worker.rows.runners.values()]
        pumps: list[Pump[Any, Any]] = [*rows, *(worker.pump for worker in known)]
        return any(pump._found and self.world.is_at(pump.thread, "hand_over") for pump in pumps)

    def workers(self) -> list[Worker]:
        """Those that live."""
        workers = [host.worker for host in self.fate.hosts if isinstance(host, WorkerHost) and host.alive]
        return [worker for worker in workers if worker is not None]

    def _stop_all(self, *, hurried: bool) -> list[WorkerHost]:
        self.fate.closing = True
        workers = [host for host in self.fate.hosts if isinstance(host, WorkerHost)]
        here = [host for host in workers if host.alive and host.worker is not None and not host.leaving]
        for host in here:
            host.stop(hurried)
        self.world.run(lambda: not any(host.leaving and host.alive for host in self.fate.hosts), MOST_STEPS)
        return here
