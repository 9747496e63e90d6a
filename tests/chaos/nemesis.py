"""Who does it: a seeded deck of faults, dealt out while the load goes on; several may be under way at a time."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

from tests.chaos import faults
from tests.chaos.faults import After
from tests.chaos.hosts import UNREACHABLE, Host
from tests.chaos.strike import DATABASE, Strike
from tests.chaos.terms import REAP_AFTER
from tests.chaos.world import World

TURN = 0.05
CALM = 60.0
STORM = 30.0
RECOVERY = REAP_AFTER + 2
"""After the end of a fault, until the next one may be told apart from it."""


@dataclass(slots=True)
class Card:
    """A kind of fault that may be next, and what it hits."""

    name: str
    on: str
    strike: Callable[..., After]


@dataclass(slots=True)
class Pending:
    """A fault that is under way."""

    due: float
    heal: Callable[[], object]
    strike: Strike
    free: Callable[[], None]


@dataclass(slots=True)
class Nemesis:
    world: World
    chance: Random
    gap: tuple[float, float]
    say: Callable[[str], None] = lambda _: None
    calm: float = CALM
    deck: list[Card] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    database_busy: bool = False

    def run(self, seconds: float) -> None:
        """In turns: one fault at a time, with time to recover; then as many as there is room for."""
        began = time.monotonic()
        end = began + seconds
        due = began + self.gap[0]
        while (now := time.monotonic()) < end:
            self.heal(now)
            self.look_after_hosts()
            if now >= due and (self._is_storm(now - began) or self._is_quiet(now)):
                self.strike()
                due = time.monotonic() + self.chance.uniform(*self.gap)
            time.sleep(TURN)

    def _is_storm(self, since: float) -> bool:
        return since % (self.calm + STORM) >= self.calm

    def _is_quiet(self, now: float) -> bool:
        """Everything is over, and has been for long enough to have recovered."""
        last = max((strike.ended for strike in self.world.strikes), default=0.0)
        return not self.pending and now - last > RECOVERY

    def heal_all(self) -> None:
        """Let everything that is under way come to its end, then see that all hosts run."""
        while self.pending:
            self.heal(time.monotonic())
            time.sleep(TURN)
        self.look_after_hosts()

    def heal(self, now: float) -> None:
        for fault in [fault for fault in self.pending if fault.due <= now]:
            if fault.heal() is False:
                continue
            self.pending.remove(fault)
            fault.strike.ended = time.monotonic()
            fault.free()

    def look_after_hosts(self) -> None:
        """No process ends that was not told to, except for want of a database at the start; as systemd, start it
        again."""
        for host in self.world.everybody:
            if not host.busy and not host.running:
                code = host.worker.code if host.worker else None
                if code != UNREACHABLE:
                    self.world.oddities.append(f"{host.name} ended by itself with code {code}")
                host.start()

    def strike(self) -> None:
        card = self._draw()
        if card is None:
            return
        victim = self._victim(card)
        self.say(f"{card.name} on {victim.name if victim else DATABASE}")
        strike = self._record(card, victim)
        after = (
            card.strike(self.world, victim, self.chance) if victim else card.strike(self.world, self.chance)
        )
        self._take(victim, True)
        free = partial(self._take, victim, False)
        self.pending.append(Pending(time.monotonic() + after.seconds, after.heal, strike, free))

    def _record(self, card: Card, victim: Host | None) -> Strike:
        where = self.world.pids()
        if victim is not None:
            where = {pid: name for pid, name in where.items() if name == victim.name}
        strike = Strike(card.name, victim.name if victim else DATABASE, time.monotonic())
        strike.alone = self._is_quiet(strike.began)
        for other in self.world.strikes:
            if not other.ended or strike.began - other.ended < RECOVERY:
                other.alone = False
        strike.at, strike.held = self.world.holding(where)
        self.world.strikes.append(strike)
        return strike

    def _take(self, victim: Host | None, busy: bool) -> None:
        if victim is None:
            self.database_busy = busy
        else:
            victim.busy = busy

    def _draw(self) -> Card | None:
        """The first card whose kind of victim is free; the others keep their place."""
        if not self.deck:
            self.deck = self._shuffled()
        for card in self.deck:
            if self._is_possible(card):
                self.deck.remove(card)
                return card
        return None

    def _shuffled(self) -> list[Card]:
        kinds = (
            ("host", faults.HOST_FAULTS),
            ("database", faults.DATABASE_FAULTS),
            ("producer", faults.PRODUCER_FAULTS),
        )
        deck = [
            Card(fault.__name__, on, fault)
            for on, some in kinds
            for fault, (times, not_on) in some.items()
            if self.world.terms.database not in not_on
            for _ in range(times)
        ]
        self.chance.shuffle(deck)
        return deck

    def _is_possible(self, card: Card) -> bool:
        match card.on:
            case "database":
                return not self.database_busy
            case "producer":
                return self.world.producer is not None and not self.world.producer.busy
            case _:
                # At least one host is left alone at any time.
                return sum(host.busy for host in self.world.hosts) < len(self.world.hosts) - 1

    def _victim(self, card: Card) -> Host | None:
        match card.on:
            case "database":
                return None
            case "producer":
                return self.world.producer
            case _:
                return self.chance.choice([host for host in self.world.hosts if not host.busy])
