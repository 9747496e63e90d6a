"""Interruptions: a task that waits on an event loop for a thread's work is told to end, in the middle of it.

By its timeout, by a cancellation, by a stop that is in a hurry; a caller hangs up. The thread waits a little, so that
the one who was interrupted may well be gone before it goes on.
"""

from __future__ import annotations

from tests.simulation.hosts import Host, WorkerHost
from tests.simulation.world import SECOND, World

A_WHILE = 5 * SECOND
APART = ("/transaction", "/pool", "/door")
"""Threads that a task on an event loop waits for."""
MOMENTS = (0.002, 0.05, 0.5)


def interrupt(world: World, host: Host) -> None:
    """Once, or once more while it is about to end."""
    for _ in range(world.rng.choice([1, 1, 2])):
        _interrupt(world, host)
        world.sleep(world.rng.choice(MOMENTS))


def _interrupt(world: World, host: Host) -> None:
    """One of the ways in which that comes about."""
    way = world.rng.randrange(4)
    works = isinstance(host, WorkerHost) and host.worker is not None
    if way == 0 and works and not host.leaving:
        host.stop(hurried=True)  # type: ignore[attr-defined]
    elif way == 1 and works:
        world.spawn("canceller", host.cancel_running, world.harness)  # type: ignore[attr-defined]
    else:
        host.skew += A_WHILE  # time-outs and the patience of callers are over now
        world.record("jumped", host.name)
