"""The lanes that a claimer knows, each with its floor: how far it has seen that lane. Hints, never truth.

A claim asks for what lies above the floor, so that it never walks over what is gone. Because sequence order is not
commit order, the floor is left out now and then; how often depends on what that costs.

A lane is remembered as long as it gives something. One that was told of and held nothing is forgotten with the look
that found nothing in it; of those that have given something, the few that did so last are kept, for their floors. So a
claim costs the same whatever was told, and however many lanes there were.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from penstock.database.dialect import Lane
from penstock.queue.wakeups import TIERS
from penstock.values.parse import QueueLimit, is_queue

SWEEP_SHARE = 20
"""A sweep may take at most one part in this many of the time."""
SHORTEST_SWEEP_INTERVAL = 0.02
KEPT = 16
"""How many empty lanes are remembered: those that had work last."""
ASKED = 64
"""The most lanes that one claim asks for, most urgent first; a sweep looks at as many."""
KNOWN = 256
"""How many lanes are remembered that were not looked at yet, or that others may have emptied."""
START = ("", TIERS.start)
"""Before every lane."""


@dataclass(slots=True)
class Lanes:
    """Lanes known, their floors, and when to look at everything again."""

    queues: Sequence[QueueLimit] | None
    longest_interval: float
    uses_floor: bool
    shuffle: Callable[[list[Lane]], None] = random.shuffle
    """Queues of one tier are asked in turn, so that none starves another."""
    floors: dict[tuple[str, int], int] = field(default_factory=dict)
    """In the order in which something was last taken from them, or told of them."""
    paused: frozenset[str] = frozenset()
    """Queues that are paused: nothing is claimed from them."""
    sweeps_from: tuple[str, int] = START
    """The lane at which the last sweep stopped."""
    _next_sweep: float = 0.0
    _forced: bool = True

    def control(self, queues: Sequence[QueueLimit] | None, paused: frozenset[str]) -> None:
        """Take from these queues from now on. Called from another thread: the next claim follows it."""
        self.queues, self.paused = queues, paused
        self.force_sweep()

    @property
    def names(self) -> list[str] | None:
        return None if self.queues is None else [queue.name for queue in self.queues]

    def left(self, busy: dict[str, int]) -> dict[str, int] | None:
        """How many more claims the process may hold of each queue. None: there is no limit but the room itself."""
        if self.queues is None:
            return None
        unlimited = 1 << 30
        return {
            queue.name: unlimited if queue.limit is None else queue.limit - busy.get(queue.name, 0)
            for queue in self.queues
        }

    def has_room(self, queue: str, busy: dict[str, int]) -> bool:
        left = self.left(busy)
        return queue not in self.paused and (left is None or left.get(queue, 0) > 0)

    def above_floor(self, room: int, busy: dict[str, int]) -> list[Lane]:
        """The known lanes, most urgent first, each with what may be taken from it."""
        return self._lanes(self.floors.items(), room, busy)

    def from_bottom(self, found: Iterable[tuple[str, int]], room: int, busy: dict[str, int]) -> list[Lane]:
        """The lanes just found, from their very beginning."""
        return self._lanes([(lane, 0) for lane in found], room, busy)

    def _lanes(
        self, items: Iterable[tuple[tuple[str, int], int]], room: int, busy: dict[str, int]
    ) -> list[Lane]:
        queues, paused = self.queues, self.paused
        limits = {} if queues is None else {queue.name: queue.limit for queue in queues}
        lanes = []
        for (queue, tier), floor in items:
            if queue in paused or (queues is not None and queue not in limits):
                continue
            limit = limits.get(queue)
            cap = room if limit is None else min(room, limit - busy.get(queue, 0))
            if cap > 0:
                lanes.append(Lane(queue, tier, floor if self.uses_floor else 0, cap))
        if len(lanes) < 2:
            return lanes
        self.shuffle(lanes)
        return sorted(lanes, key=lambda lane: lane.tier)[:ASKED]

    def learn(self, floors: dict[tuple[str, int], int]) -> None:
        """Raise the floors of these lanes to the sequences seen."""
        for lane, seq in floors.items():
            self.floors[lane] = max(seq, self.floors.pop(lane, 0))
        self._forget_beyond(KNOWN)

    def emptied(self, lanes: Iterable[tuple[str, int]]) -> None:
        """A claim with free room found nothing in these lanes: forget them, or keep their floors."""
        empty = [lane for lane in lanes if lane in self.floors]
        for lane in empty:
            if not self.floors[lane]:
                del self.floors[lane]
        if len(self.floors) > KEPT:
            recent = set(list(self.floors)[-KEPT:])
            for lane in empty:
                if lane not in recent:
                    self.floors.pop(lane, None)

    def hear(self, queue: str, tier: int) -> bool:
        """Note that there may be work in this lane. False: this process does not take from it."""
        if not is_queue(queue) or tier not in TIERS:
            return False
        names = self.names
        if queue in self.paused or (names is not None and queue not in names):
            return False
        self.floors.setdefault((queue, tier), 0)
        self._forget_beyond(KNOWN)
        return True

    def _forget_beyond(self, most: int) -> None:
        """Forget lanes, the least urgent first; a sweep finds them again."""
        while len(self.floors) > most:
            del self.floors[max(self.floors, key=lambda lane: lane[1])]
            self._forced = True

    def sweep_is_due(self, found: int, wanted: int) -> bool:
        """True if a claim above the floors found too little and a sweep is worth its cost.

        A claim that found something sweeps more rarely, so that its jobs do not wait for the sweep.
        """
        if found >= wanted:
            return False
        now = time.monotonic()
        patience = self.longest_interval if found else 0.0
        return now >= self._next_sweep + patience or (self._forced and not found)

    def force_sweep(self) -> None:
        self._forced = True

    def swept(self, found: Sequence[tuple[str, int]], seconds: float) -> None:
        """A look at lanes, known or not, is done: wait for the next according to what it cost.

        If there were more than it could look at, the next one goes on after the last of these.
        """
        self.sweeps_from = found[-1] if len(found) >= ASKED else START
        for lane in found:
            self.floors.setdefault(lane, 0)
        self._forget_beyond(KNOWN)
        interval = min(max(seconds * SWEEP_SHARE, SHORTEST_SWEEP_INTERVAL), self.longest_interval)
        self._next_sweep = time.monotonic() + interval
        self._forced = False
