"""The rules of limits, replayed over the history: never one job too many, and no job runs that was not admitted.

A slot is what the tables say: a row that names its claim. After every commit that gives some, those that count are
counted again, here by hand. Invariant 13.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.story import Story
from tests.simulation.world import SECOND, START

NEVER = 4611686018427387904
HELD_BY = {"narrow": 1, "paired": 1, "crowded": 2, "slim": 1, "resting": 1, "shapes.label": 1}
"""The tasks that have limits, and how many slots each has for as long as it is held."""
LEFT_OVER = f"SELECT job_id FROM penstock_slots WHERE until = {NEVER}"

Slot = tuple[str, str, int, int]
"""Job, key, token, end."""


@dataclass(slots=True)
class LimitModel:
    """Slots and the tokens they name, as the history tells them."""

    wrong: list[str] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=dict)
    slots: dict[str, set[Slot]] = field(default_factory=lambda: defaultdict(set))
    tokens: dict[str, int | None] = field(default_factory=dict)
    tasks: dict[str, str] = field(default_factory=dict)
    at: int = 0
    who: str = ""

    def say(self, what: str) -> None:
        self.wrong.append(f"{(self.at - START) / SECOND:.3f} {self.who}: {what} [13]")

    def read(self, history: list[tuple[Any, ...]]) -> None:
        for at, who, kind, *facts in history:
            self.at, self.who = at, who
            if kind == "commit":
                self._commit(facts[1])
            elif kind == "began" and facts[0] in self.tasks:
                self._began(facts[0], facts[2])

    def _commit(self, facts: list[tuple[Any, ...]]) -> None:
        given: dict[str, int] = {}
        for at, kind, *rest in facts:
            match kind:
                case "jobs+" if rest[1] in HELD_BY:
                    self.tasks[rest[0]] = rest[1]
                case "state":
                    self.tokens[rest[0]] = rest[10]
                case "limits+":
                    self.most[rest[0]] = rest[1]
                case "slots+":
                    self.slots[rest[1]].add(tuple(rest))
                    given[rest[1]] = at
                    self._check_end(rest, at)
                case "slots-":
                    self.slots[rest[1]].discard(tuple(rest))
        for key, at in given.items():
            counting = sum(self._counts(slot, at) for slot in self.slots[key])
            if counting > self.most[key]:
                self.say(f"{counting} count against {key}, which allows {self.most[key]}")

    def _check_end(self, slot: Sequence[Any], at: int) -> None:
        """A start counts for as long as its rate says, by the database's clock."""
        _, key, token, until = slot
        if token and until != NEVER:
            per = float(key.removeprefix("rate/").partition("s")[0]) * SECOND
            if abs(until - at - per) > SECOND / 2:
                self.say(f"a start counts for {(until - at) / SECOND:.1f} s against {key}")

    def _counts(self, slot: Slot, at: int) -> bool:
        job, _, token, until = slot
        if token == 0:
            return False  # reserved, for one that does not run yet
        return self.tokens.get(job) == token if until == NEVER else until > at

    def _began(self, job: str, token: int) -> None:
        """A job that begins while its claim is held was admitted by all its limits."""
        if self.tokens.get(job) != token:
            return
        held = [
            slot for slots in self.slots.values() for slot in slots if slot[0] == job and slot[2] == token
        ]
        if sum(slot[3] == NEVER for slot in held) != HELD_BY[self.tasks[job]]:
            self.say(f"{job} runs without its slots")


def check(story: Story) -> Iterator[str]:
    model = LimitModel()
    model.read(story.history)
    yield from model.wrong
    for (job,) in story.rows(LEFT_OVER):
        yield f"left in slots at the end: {job} [13]"
