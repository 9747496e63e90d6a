"""The rules of a run's life, replayed over the history: what follows from a step's end follows at once, and once.

After every commit: a run is terminal if and only if all its steps are; a join fires once; nothing is counted twice;
what a run tells at its end is written with its end. The numbers are those of the invariants.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.story import Story
from tests.simulation.world import SECOND, START

OVER = ("succeeded", "failed", "halted", "cancelled", "skipped")
TERMINAL = ("succeeded", "failed", "cancelled", "skipped")
CALLBACK = "shapes.told"
RUNS = "SELECT id, status FROM penstock_runs"


@dataclass(slots=True)
class RunModel:
    """Runs, their steps and their joins, as the history tells them."""

    wrong: list[str] = field(default_factory=list)
    run_of: dict[str, str] = field(default_factory=dict)
    steps: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """Run → step → status."""
    status: dict[str, str] = field(default_factory=dict)
    stands_still: dict[str, str] = field(default_factory=dict)
    """Runs in which nothing may start now, and why."""
    growing: dict[str, str] = field(default_factory=dict)
    """Large expands under way → their run."""
    at: int = 0
    who: str = ""

    def say(self, what: str) -> None:
        self.wrong.append(f"{(self.at - START) / SECOND:.3f} {self.who}: {what}")

    def read(self, history: list[tuple[Any, ...]]) -> None:
        for at, who, kind, *facts in history:
            if kind == "commit":
                self.at, self.who = at, who
                self._commit(facts[1])

    def _commit(self, facts: list[tuple[Any, ...]]) -> None:
        touched: dict[str, None] = {}
        ended: dict[str, None] = {}
        told: set[str] = set()
        still = dict(self.stands_still)
        known = {run: set(self.steps[run]) for run in still}
        for _, kind, *rest in facts:
            match kind:
                case "jobs+":
                    self._made(rest, told)
                case "state" if rest[0] in self.run_of:
                    self._moved(rest, touched)
                case "run":
                    self._steered(rest, touched, ended)
                case "join":
                    self._joined(rest)
                case "advancements+":
                    self.growing[rest[0]] = rest[1]
                case "advancements-":
                    self.growing.pop(rest[0], None)
        for run in touched:
            self._agree(run)
        for run in touched.keys() & still.keys():
            held = [job for job, status in self.steps[run].items() if status == "running"]
            if not known[run].issuperset(held):
                self.say(f"a new step of {run} was held at once, although that was {still[run]}")
        for run in told - set(ended):
            self.say(f"run {run} is told to be over, but not with its end [4]")

    def _made(self, job: list[Any], told: set[str]) -> None:
        id, task, *_, key, run = job
        if run is not None:
            self.run_of[id] = run
        if task == CALLBACK:
            told.add(str(key).partition(":")[2])

    def _moved(self, rest: list[Any], touched: dict[str, None]) -> None:
        job, status = rest[0], rest[9]
        run = self.run_of[job]
        touched[run] = None
        if status is None:
            self.steps[run].pop(job, None)
            return
        before = self.steps[run].get(job)
        if before in TERMINAL and status != before:
            self.say(f"step {job} of {run} was {before} and is {status} [5]")
        self.steps[run][job] = status

    def _steered(self, rest: list[Any], touched: dict[str, None], ended: dict[str, None]) -> None:
        run, old, new, mode, paused, failed = rest
        touched[run] = None
        self.stands_still.pop(run, None)
        if mode != "running" or paused is not None:
            self.stands_still[run] = "paused" if mode == "running" else mode
        self.status[run] = new
        if new in OVER and old not in OVER:
            ended[run] = None
        if new == "succeeded" and failed:
            self.say(f"run {run} is said to have succeeded, but {failed} of its steps have failed")
        if old in OVER and new != old:
            self.say(f"run {run} was {old} and is {new} [7]")

    def _joined(self, rest: list[Any]) -> None:
        run, node, path, before, after, still_open = rest
        if before and not after:
            self.say(f"the join of {node} {path} in {run} is open again [6]")
        if still_open < 0:
            self.say(f"the join of {node} {path} in {run} was counted down {-still_open} times too often [5]")

    def _agree(self, run: str) -> None:
        steps = self.steps[run].values()
        over = bool(steps) and all(status in TERMINAL for status in steps)
        if over and self.status.get(run) not in OVER and run not in self.growing.values():
            self.say(f"all steps of {run} are over, but not the run [4, 7]")
        if not over and steps and self.status.get(run) in OVER:
            self.say(f"run {run} is over, but not all its steps [7]")


def check(story: Story) -> list[str]:
    model = RunModel()
    model.read(story.history)
    for run, status in story.rows(RUNS):
        if status not in OVER:
            model.wrong.append(f"run {run} is still {status} at the end [7]")
    return model.wrong
