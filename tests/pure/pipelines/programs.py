"""Random pipelines, as a random programmer would write them in the graph spelling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from penstock.errors import DefinitionError
from penstock.pipelines.define.graph import barrier, first, switch, wait_for
from penstock.pipelines.define.handles import Handle, node_of, scope_of
from penstock.pipelines.model.definition import Definition
from penstock.pipelines.model.expressions import Path
from tests.pure.pipelines.fakes import graph, task
from tests.pure.pipelines.machine import Boom

LABELS = ("x", "y", "z")
ELEMENTS: tuple[object, ...] = (None, False, 0, "a", {"k": 1}, "b")

# What a task returns is told by its name: any value, a list, a label, or something that is no list.
VALUE, LIST, LABEL = (task(name, "*values") for name in ("value", "list", "label"))


@dataclass
class Program:
    """A definition and what its steps do, both from one seed."""

    definition: Definition
    seed: int
    failing: float

    def outcome(self, node: str, path: Path, args: list[object], kwargs: dict[str, object]) -> object:
        dice = Random(f"{self.seed} {node} {path}")
        if dice.random() < self.failing:
            raise Boom
        if node.startswith("list"):
            odd = dice.random()
            if odd < 0.03:
                return 7
            if odd < 0.1:
                return {"a": 1, "b": None}
            return [dice.choice(ELEMENTS) for _ in range(dice.randrange(4))]
        if node.startswith("label"):
            return dice.choice((*LABELS, "other"))
        return [node, list(path), args, kwargs]


class Writer:
    """Writes one pipeline, choice by choice."""

    value: Any = VALUE
    sources: Mapping[str, Any] = {"list": LIST, "label": LABEL}
    longest = 30
    losing = True
    """Whether there are waits that may lose."""

    def __init__(self, choose: Random, strategies: bool) -> None:
        self.choose = choose
        self.strategies = strategies
        self.left = choose.randrange(3, self.longest)

    def write(self, param: Any) -> Any:
        known = [param]
        self.block(known, 4)
        if not [handle for handle in known if node_of(handle) is not None]:
            known.append(self.value(param))
        outside = [handle for handle in known if not scope_of(handle)]
        return self.choose.choice(
            [[*outside], self.choose.choice(outside), {"r": self.choose.choice(outside)}]
        )

    def block(self, known: list[Any], depth: int) -> None:
        """Some statements; what they make is appended to `known`."""
        for _ in range(self.choose.randrange(1, 8)):
            if self.left <= 0:
                return
            self.left -= 1
            words: list[Callable[[list[Any], int], None]] = [self.call, self.call, self.expand, self.branch]
            word = self.choose.choice([*words, self.any_of, self.gate] if depth else [self.call])
            try:
                word(known, depth)
            except DefinitionError as error:
                # Only what a user, too, would be told.
                assert "expand" in str(error), error

    def call(self, known: list[Any], depth: int) -> None:
        known.append(self.task(known)(*self.some(known)))

    def expand(self, known: list[Any], depth: int) -> None:
        over = self.like("list", known)
        entry = self.task(known, after=False, guard=False).map(over, *self.some(known)[:1])
        inner = [*known, entry]
        self.block(inner, depth - 1)
        made = [handle for handle in inner[len(known) :] if scope_of(handle) == scope_of(entry)]
        kept = self.choose.sample(made, self.choose.randrange(len(made) + 1))
        known.extend([handle.collect() for handle in kept])
        known.extend([h for h in inner[len(known) :] if len(scope_of(h)) < len(scope_of(entry))])

    def branch(self, known: list[Any], depth: int) -> None:
        value = self.like("label", known)
        leaked: list[Any] = []
        arms = {label: self.arm(known, depth, leaked) for label in LABELS[: self.choose.randrange(4)]}
        merged: Any = switch(value, arms, otherwise=self.arm(known, depth, leaked))
        known.append(merged)
        if self.choose.random() < 0.2:
            known.extend([h for h in leaked if scope_of(h) == scope_of(merged)])

    def arm(self, known: list[Any], depth: int, leaked: list[Any]) -> Any:
        kind = self.choose.randrange(5)
        if kind == 0:
            return None
        if kind == 1:
            return self.task(known, after=False)

        def build() -> Any:
            inner = list(known)
            self.block(inner, depth - 1)
            made = inner[len(known) :]
            leaked.extend(made)
            here = len(scope_of(made[-1])) if made else 0
            tails = [h for h in (made or known) if len(scope_of(h)) <= min(here, len(self.scope_now(known)))]
            return self.choose.choice([None, 5, *tails, *tails, *tails]) if tails else None

        return build

    def scope_now(self, known: list[Any]) -> tuple[str, ...]:
        builder = known[0]._builder
        scope: tuple[str, ...] = builder.frame.scope
        return scope

    def any_of(self, known: list[Any], depth: int) -> None:
        steps = self.steps(known)
        if steps:
            scope = scope_of(self.choose.choice(steps))
            alike = [handle for handle in steps if scope_of(handle) == scope]
            some = self.choose.sample(alike, min(len(alike), self.choose.randrange(1, 4)))
            if self.losing and self.choose.random() < 0.4:
                self.race(known, some, self.choose.choice(alike))
                return
            count = self.choose.randrange(1, len(some) + 1)
            known.append(first(*some, count=count if 1 < count <= len(set(map(repr, some))) else None))

    def race(self, known: list[Any], some: list[Any], passed: Any) -> None:
        """A first with a wait that nothing else uses: it may lose."""
        waited = self.wait(f"lost{len(known)}", passed)
        most = len({repr(one) for one in (*some, waited)})
        count = self.choose.randrange(1, most + 1)
        try:
            known.append(first(*some, waited, count=count if count > 1 else None))
        except DefinitionError:
            # A wait that holds nothing up would be refused.
            known.append(self.value.options(after=[waited])(1))
            raise

    def gate(self, known: list[Any], depth: int) -> None:
        steps = self.steps(known)
        if not steps:
            return
        passed = barrier(*self.choose.sample(steps, min(len(steps), self.choose.randrange(1, 4))))
        if self.choose.random() < 0.5:
            waited = self.wait(f"value{len(known)}", passed)
            known.extend([waited, self.value.options(after=[waited])(1)])
            return
        try:
            known.append(self.task(known).options(after=[passed])(*self.some(known)))
        except DefinitionError:
            # A barrier that nothing comes after would be refused.
            known.append(self.value.options(after=[passed])(1))
            raise

    def wait(self, name: str, passed: Any) -> Any:
        return wait_for(name, after=[passed])

    def task(self, known: list[Any], after: bool = True, guard: bool = True) -> Any:
        chosen = self.choose.choice((self.value, self.value, *self.sources.values()))
        options: dict[str, object] = {}
        if self.strategies and self.choose.random() < 0.4:
            options["on_failure"] = self.choose.choice(["continue", "ignore"])
        elif self.strategies and self.choose.random() < 0.2:
            options["optional"] = True
        elif self.strategies and guard and self.choose.random() < 0.2:
            options["on_failure"] = self.value
        steps = self.steps(known)
        if after and steps and self.choose.random() < 0.15:
            options["after"] = [self.choose.choice(steps)]
        return chosen.options(**options)

    def some(self, known: list[Any]) -> list[Any]:
        return [
            handle if self.choose.random() < 0.9 else [handle, {"c": 1}]
            for handle in self.choose.choices(known[-5:], k=self.choose.randrange(1, 3))
        ]

    def like(self, kind: str, known: list[Any]) -> Any:
        fitting = [h for h in self.steps(known) if kind in repr(h)]
        if fitting and self.choose.random() < 0.7:
            return self.choose.choice(fitting)
        source = self.sources[kind](self.choose.choice(known))
        known.append(source)
        return source

    def steps(self, known: list[Any]) -> list[Handle]:
        return [handle for handle in known if node_of(handle) is not None]


def program(
    seed: int, failing: float = 0.0, on_failure: str = "continue", strategies: bool = True
) -> Program:
    """The program of a seed."""

    def random_pipeline(given: object) -> object:
        return Writer(Random(seed), strategies).write(given)

    return Program(graph(random_pipeline, on_failure=on_failure), seed, failing)
