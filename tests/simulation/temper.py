"""The temper of a seed: how likely each kind of trouble is in its schedule. Some are off, others frequent."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


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
    hints: float
    """How likely another host hears of a commit."""
    any: float = field(init=False)
    """How likely anything is struck at a step."""

    def __post_init__(self) -> None:
        hosts = (self.crash, self.freeze, self.stall, self.stop, self.jump)
        self.any = sum(hosts) + self.delay + self.outage + self.late

    @classmethod
    def of(cls, rng: random.Random) -> Temper:
        def rate(*choices: float) -> float:
            return rng.choice([0.0, *choices])

        return cls(
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
            hints=rate(0.5, 1.0),
        )
