"""What a claimer remembers of the queue: its lanes, and how far it has seen each. Hints, never truth.

A claim asks for what lies above the floor, so that it never walks over what is gone. Because sequence order is not
commit order, the floor is left out now and then; how often depends on what that costs.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.database.dialect import Lane
from penstock.values.units import QueueLimit

SWEEP_SHARE = 20
"""A sweep may take one part in so many of the time."""
SHORTEST_SWEEP_INTERVAL = 0.02


@dataclass(slots=True)
class Lanes:
    """Lanes known, their floors, and when to look at everything again."""

    queues: Sequence[QueueLimit] | None
    longest_interval: float
    uses_floor: bool
    shuffle: Callable[[list[Lane]], None] = random.shuffle
    """Lanes of one tier take turns: no queue may starve another."""
    floors: dict[tuple[str, int], int] = field(default_factory=dict)
    _next_sweep: float = 0.0
    _forced: bool = True

    @property
    def names(self) -> list[str] | None:
        return None if self.queues is None else [queue.name for queue in self.queues]

    def left(self, busy: dict[str, int]) -> dict[str, int] | None:
        """What may still be held of each queue. None: there is no limit but the room itself."""
        if self.queues is None:
            return None
        unlimited = 1 << 30
        return {
            queue.name: unlimited if queue.limit is None else queue.limit - busy.get(queue.name, 0)
            for queue in self.queues
        }

    def above_floor(self, room: int, busy: dict[str, int]) -> list[Lane]:
        """The known lanes, most urgent first, each with what may be taken from it."""
        return self._lanes(self.floors.items(), room, busy)

    def from_bottom(self, found: Iterable[tuple[str, int]], room: int, busy: dict[str, int]) -> list[Lane]:
        """The lanes just found, from their very beginning."""
        return self._lanes([(lane, 0) for lane in found], room, busy)

    def _lanes(
        self, items: Iterable[tuple[tuple[str, int], int]], room: int, busy: dict[str, int]
    ) -> list[Lane]:
        limits = {} if self.queues is None else {queue.name: queue.limit for queue in self.queues}
        lanes = []
        for (queue, tier), floor in items:
            limit = limits.get(queue)
            cap = room if limit is None else min(room, limit - busy.get(queue, 0))
            if cap > 0:
                lanes.append(Lane(queue, tier, floor if self.uses_floor else 0, cap))
        if len(lanes) < 2:
            return lanes
        self.shuffle(lanes)
        return sorted(lanes, key=lambda lane: lane.tier)

    def learn(self, floors: dict[tuple[str, int], int]) -> None:
        for lane, seq in floors.items():
            self.floors[lane] = max(seq, self.floors.get(lane, 0))

    def hear(self, queue: str, tier: int) -> bool:
        """There may be something in this lane. False: it is not one of ours."""
        names = self.names
        if names is not None and queue not in names:
            return False
        self.floors.setdefault((queue, tier), 0)
        return True

    def sweep_is_due(self, found: int, wanted: int) -> bool:
        """When little was found above the floors. Whoever found something is not kept waiting for the rest."""
        if found >= wanted:
            return False
        now = time.monotonic()
        patience = self.longest_interval if found else 0.0
        return now >= self._next_sweep + patience or (self._forced and not found)

    def force_sweep(self) -> None:
        self._forced = True

    def swept(self, found: Iterable[tuple[str, int]], seconds: float) -> None:
        """A look at everything is done: remember the lanes that exist, and wait according to what it cost."""
        self.floors = {lane: self.floors.get(lane, 0) for lane in [*self.floors, *found]}
        interval = min(max(seconds * SWEEP_SHARE, SHORTEST_SWEEP_INTERVAL), self.longest_interval)
        self._next_sweep = time.monotonic() + interval
        self._forced = False
