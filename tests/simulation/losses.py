"""Lost leases: a process stands still until others take it for dead, and then goes on from where it was.

At an await of its loop, at a hand-over, between a commit and what follows from it. It sleeps until it is really taken
for dead, and wakes up right then, perhaps before what it held is taken back, or some time later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.fibers import Owner
from tests.simulation.hosts import Host, WorkerHost
from tests.simulation.machines import SETTINGS
from tests.simulation.world import SECOND, World

LONGEST_SLEEP = int(5 * SETTINGS["reap_after"] * SECOND)
SOON_AWAKE = 0.3
"""How likely one that was taken for dead wakes up now."""
IDLE = "await in Worker._watch_services"
"""Where a worker waits that has nothing to do."""
SELDOM_SEEN = 6
"""Other awaits are come to so much less often."""


def stand_still(
    world: World, hosts: Sequence[Host], owner: Owner, rate: float, place: Callable[[], str]
) -> bool:
    """At this place, if chance will have it."""
    draw = world.rng.random()
    if not isinstance(owner, WorkerHost) or draw >= SELDOM_SEEN * rate:
        return False
    at = place()
    seldom = at.startswith("await") and at != IDLE
    if not (draw < rate or seldom) or not _is_seen(hosts, owner):
        return False
    owner.stopped_at = at
    world.note(owner.name, f"stands still at {at}")
    owner.freeze(LONGEST_SLEEP)
    return True


def is_over(world: World, host: Host, calm: bool) -> bool:
    """Whether one that stands still goes on now, for whatever reason it does."""
    if world.now >= host.thaws_at:
        return True
    if not host.stopped_at:
        return calm
    return isinstance(host, WorkerHost) and not host.is_known and world.rng.random() < SOON_AWAKE


def was_real(world: World, host: Host) -> bool:
    """Whether it was taken for dead while it stood still."""
    at, host.stopped_at = host.stopped_at, ""
    lost = bool(at) and isinstance(host, WorkerHost) and not host.is_known
    if lost:
        world.losses.add(at)
    return lost


def _is_seen(hosts: Sequence[Host], host: WorkerHost) -> bool:
    """There is a process that can take it for dead."""
    awake = [other for other in hosts if other.alive and not other.frozen]
    works = [other for other in awake if isinstance(other, WorkerHost) and other.worker is not None]
    return host in works and len(works) > 1
