"""What may go: finished work that is old enough, and that no run or job which is still there may need.

A run goes as a whole. Before it go the runs that were revived or forked from it, and the run that it is a child of, and
it stays while one that follows it has not ended: each of them may still ask what it made of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.story import Story
from tests.simulation.world import SECOND, START

OVER = ("succeeded", "failed", "halted", "cancelled", "skipped")
TERMINAL = ("succeeded", "failed", "cancelled", "skipped")


class Run(NamedTuple):
    id: str
    status: str
    parent: str | None
    revived: str | None
    forked: str | None


@dataclass(slots=True)
class Keeping:
    """Jobs and runs that are there, since when they are over, and who needs them."""

    wrong: list[str] = field(default_factory=list)
    ages: dict[str, float] = field(default_factory=dict)
    """For how long every process keeps what is over, in seconds; clients by their name."""
    runs: dict[str, Run] = field(default_factory=dict)
    steps: dict[str, dict[str, None]] = field(default_factory=dict)
    run_of: dict[str, str] = field(default_factory=dict)
    over_at: dict[str, int] = field(default_factory=dict)
    """Since when each job and run is over."""
    follows: set[tuple[str, str]] = field(default_factory=set)
    """Downstream, upstream."""
    at: int = 0
    who: str = ""

    def say(self, what: str) -> None:
        self.wrong.append(f"{(self.at - START) / SECOND:.3f} {self.who}: {what}")

    def read(self, history: list[tuple[Any, ...]]) -> None:
        for self.at, self.who, kind, *facts in history:
            host = self.who.partition("/")[0]
            if kind == "keeps" and facts[0]:
                self.ages["workers"] = facts[0]
            elif kind == "prunes":
                self.ages[host] = facts[0]
            elif kind == "repaired":
                self.say(f"run {facts[0]} had to be repaired: {facts[1]} [7]")
            elif kind == "commit":
                self._commit(host, facts[1])

    def _commit(self, host: str, facts: list[tuple[Any, ...]]) -> None:
        gone: dict[str, Run] = {}
        lost: dict[str, None] = {}
        for at, kind, *rest in facts:
            self.at = at
            match kind:
                case "jobs+" if rest[7] is not None:
                    self.run_of[rest[0]] = rest[7]
                    self.steps.setdefault(rest[7], {})[rest[0]] = None
                case "state" if rest[9] is None:
                    self._check_age(host, rest[0])
                    if rest[0] in self.run_of:
                        lost[self.run_of[rest[0]]] = None
                        self.steps[self.run_of[rest[0]]].pop(rest[0], None)
                case "state":
                    self._ends(rest[0], rest[9] in TERMINAL)
                case "runs+":
                    self.runs[rest[0]] = Run(*rest)
                    self._ends(rest[0], rest[1] in OVER)
                case "run":
                    self.runs[rest[0]] = self.runs[rest[0]]._replace(status=rest[2])
                    self._ends(rest[0], rest[2] in OVER)
                case "runs-":
                    self._check_age(host, rest[0])
                    gone[rest[0]] = self.runs.pop(rest[0])
                case "chains+":
                    self.follows.add((rest[0], rest[1]))
        for run in gone.values():
            self._check_needed(run)
        for id in lost:
            if id in self.runs:
                self.say(
                    f"steps of {id} are gone, and it is there: a run that needs it finds it without its work"
                )

    def _ends(self, id: str, over: bool) -> None:
        if over:
            self.over_at.setdefault(id, self.at)
        else:
            self.over_at.pop(id, None)

    def _check_age(self, host: str, id: str) -> None:
        age = self.ages.get(host if host.startswith("client") else "workers")
        if id not in self.over_at:
            self.say(f"{id} is gone, and was not over")
        elif age is None or self.at - self.over_at[id] < age * SECOND:
            since = (self.at - self.over_at[id]) / SECOND
            self.say(f"{id} was over for {since:.1f} s when it was removed, and is to be kept for {age} s")

    def _check_needed(self, run: Run) -> None:
        if self.steps.get(run.id):
            self.say(f"run {run.id} is gone, but not all its steps")
        before: Run | None = run
        while before is not None:
            if before.parent in self.runs:
                self.say(f"run {run.id} is gone before {before.parent}, whose child it is, or continues")
            before = None if before.forked else self.runs.get(before.revived or "")
        for other in self.runs.values():
            if other.revived == run.id:
                self.say(f"run {run.id} is gone before {other.id}, which was revived or forked from it")
            if (other.id, run.id) in self.follows and other.status not in OVER:
                self.say(f"run {run.id} is gone before {other.id} has ended, which follows it")


def check(story: Story) -> Iterator[str]:
    keeping = Keeping()
    keeping.read(story.history)
    yield from keeping.wrong
