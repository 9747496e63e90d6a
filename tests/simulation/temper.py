"""The temper of a seed: how likely each kind of trouble is in its schedule. Some are off, others frequent.

Whoever searches for one thing leans on it: what it says is instead of what the seed would have (`Lean`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

FAST_FROM = 1_794_974_400_000
"""Seeds below it were recorded when there was nothing but the general way, and are to show the same for ever."""

Lean = Mapping[str, float]
"""Fields of a temper, and what they are in every schedule of a search."""


@dataclass(slots=True)
class Temper:
    """How likely each kind of trouble is: per step, per statement, per commit."""

    crash: float
    freeze: float
    stall: float
    linger: float
    stop: float
    jump: float
    delay: float
    outage: float
    late: float
    statement: float
    commit: float
    interrupt: float
    """How likely an async caller or handler is interrupted at a statement that it waits for."""
    loss: float
    """How likely a process stands still for so long that it is taken for dead, at an await or a hand-over."""
    hints: float
    """How likely another host hears of a commit."""
    sticks: float
    """How likely a thread goes on at a place where it could be held up."""
    trouble: int
    """For so many steps."""
    retention: float
    """Seconds for which workers keep what is over; none: for ever."""
    tidies: float = 0.15
    """How often old work is removed by hand while there is other work to do."""
    home: float = 0.1
    """How often all workers are stopped in order in the middle of it, and others come after them."""
    closes: float = 0.15
    """How often the last workers are stopped in order at the end."""
    fast: float = 0.0
    """1.0: successes are settled the fast way, as on PostgreSQL. Only where it is leant on, and for every other seed
    from `FAST_FROM` on."""
    poison: float = 0.0
    """How likely a row or a hint turns up that nothing can be made of. Only where it is leant on."""
    any: float = field(init=False)
    """How likely anything is struck at a step."""

    def __post_init__(self) -> None:
        hosts = (self.crash, self.freeze, self.stall, self.stop, self.jump)
        self.any = sum(hosts) + self.delay + self.outage + self.late

    @classmethod
    def of(cls, rng: random.Random, lean: Lean) -> Temper:
        def rate(*choices: float) -> float:
            return rng.choice([0.0, *choices])

        drawn = cls(
            crash=rate(0.002, 0.006, 0.02),
            freeze=rate(0.002, 0.006, 0.02),
            stall=rate(0.01, 0.04),
            linger=rate(0.02, 0.1),
            stop=rate(0.002, 0.005),
            jump=rate(0.005),
            delay=rate(0.005, 0.02),
            outage=rate(0.0, 0.002),
            late=rate(0.0, 0.005, 0.02),
            statement=rate(0.002, 0.01, 0.03),
            commit=rate(0.01, 0.05, 0.15),
            interrupt=rate(0.03, 0.15),
            loss=rate(0.0, 0.02, 0.08),
            hints=rate(0.5, 1.0),
            sticks=rng.choice([0.2, 0.6, 0.85]),
            trouble=rng.randint(40, 220),
            retention=rate(0.0, 0.0, 0.0, 1.0, 4.0),
        )
        return replace(drawn, **lean) if lean else drawn  # type: ignore[arg-type]
