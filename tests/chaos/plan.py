"""What the producer does, by number, and what must come of it. Pure: the producer acts on it, the checker judges by it.

An operation is known by its number. The number is the argument of its job or run and part of its key, so that an
operation whose answer was lost can be repeated.
"""

from dataclasses import dataclass
from random import Random
from typing import Any

# How many of each in a hundred.
WEIGHTS = {
    "plain": 20,
    "threaded": 6,
    "crunch": 1,
    "stumble": 6,
    "doomed": 3,
    "overdue": 2,
    "doze": 5,
    "charge": 7,
    "book": 10,
    "late": 5,
    "slow": 30,
    "cancelled": 3,
    "ordered": 5,
    "many": 2,
    "poison": 0.3,
    "enrich": 4,
    "wide": 0.7,
    "choose": 3,
    "halting": 1,
    "continuing": 1,
    "ignoring": 1,
    "optional": 1,
    "approval": 2,
    "unheard": 1,
    "chained": 1,
    "broken_chain": 0.7,
    "nested": 1,
    "counter": 3,
    "fleet": 1,
    "bump": 3,
}
JOBS = ("plain", "threaded", "crunch", "stumble", "doomed", "overdue", "doze", "charge", "book", "late", "slow",
        "cancelled", "ordered", "poison")  # fmt: skip
RUNS = ("enrich", "wide", "choose", "halting", "continuing", "ignoring", "optional", "approval", "unheard", "chained",
        "broken_chain", "nested")  # fmt: skip
BODIES = (*JOBS, "beat", "careful", "minutely", "completed", "ended_badly", "spread", "left", "right", "pair", "gather",
          "tell", "both", "modulo", "word", "finish", "compare")  # fmt: skip
"""The tasks that write to the ledger when they begin; waits and child runs are steps without a body."""
DOOMED = ("doomed", "poison")
MANY = 5
DELAYS = (0.5, 1.0, 3.0)
ROUNDS = 3
"""How often a fleet sails, and up to what a counter counts."""
SHIPS = 3
RUN_STATUS = {"halting": "halted", "continuing": "failed", "ignoring": "failed", "broken_chain": "halted"}
"""How runs end that do not succeed."""
PIPELINES = {
    "wide": "enrich",
    "unheard": "approval",
    "chained": "enrich",
    "broken_chain": "halting",
}
"""Which pipeline a kind of run is, where that is not its name."""
SCHEDULES: dict[str, dict[str, Any]] = {
    "beat": {"every": 1, "overlap": "allow", "missed": "all"},
    "careful": {"every": 1, "overlap": "skip"},
    "minutely": {"cron": "* * * * *", "overlap": "allow"},
    "round": {"every": 2, "overlap": "allow", "missed": "all"},
    "careful_round": {"every": 2, "overlap": "skip"},
}
"""Schedules that tick all the time: each has the name of its task or pipeline, which nothing else starts."""
ROUNDS_OF = ("round", "careful_round")
"""Those of them that trigger pipelines."""


@dataclass(frozen=True, slots=True)
class Operation:
    number: int
    kind: str

    @property
    def key(self) -> str:
        return f"operation-{self.number}"

    @property
    def pipeline(self) -> str:
        return PIPELINES.get(self.kind, self.kind)


def operation(seed: int, number: int) -> Operation:
    """The same for the same seed and number, in every process."""
    chance = Random(seed * 1_000_003 + number)
    return Operation(number, chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0])


def errors_of(number: int) -> int:
    """How often a stumbling job raises before it succeeds."""
    return 1 + number % 2


def delay_of(number: int) -> float:
    return DELAYS[number % len(DELAYS)]


def width_of(kind: str, number: int) -> int:
    """How many elements a run expands to; wide ones are made in chunks."""
    return 20 + number % 20 if kind == "wide" else number % 6


def gathered(number: int, width: int) -> list[str]:
    """What a fan-in must be given, in this order."""
    return [f"{number}.{index}a+{number}.{index}b" for index in range(width)]


def finished(kind: str, number: int, signalled: bool) -> object:
    """The value of a run's last step; None where there is none."""
    match kind:
        case "enrich" | "wide" | "chained":
            return gathered(number, width_of(kind, number))
        case "choose":
            return {0: f"left {number}", 1: f"right after {number}", 2: f"{number % 3}"}[number % 3]
        case "ignoring" | "optional":
            return f"None and {number}"
        case "approval" | "unheard":
            return f"approved {number}" if signalled else "refused"
        case "nested":
            return [f"inner {number}", f"outer {number}"]
        case _:
            return None


def last_step(kind: str) -> str:
    """The task that makes the value of the run."""
    return {"enrich": "gather", "wide": "gather", "chained": "gather", "nested": "both"}.get(kind, "finish")
