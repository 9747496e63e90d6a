"""A pipeline as a value: nodes by key, the same on every boot, stored as canonical JSON under its hash.

A run keeps the definition it started with. Tasks are named in it, not held: a deploy may change what a task
does, never the shape of a run that is under way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import cast

from penstock.pipelines.callback import Callback
from penstock.pipelines.expressions import (
    NOTHING,
    Element,
    Expr,
    JsonValue,
    canonical,
    from_json,
    outputs_in,
    to_json,
)
from penstock.pipelines.wait import Wait
from penstock.values.cached import cached_property

FORMAT = 2
RESERVED = "@"
END = "@end"
CLOSE = "@close."


class Kind(StrEnum):
    """What a node is. The first three are steps that users see; the others only steer, and take no job."""

    TASK = "task"
    WAIT = "wait"
    CHILD = "child"
    EXPAND = "expand"
    COLLECT = "collect"
    SWITCH = "switch"
    MERGE = "merge"
    FIRST = "first"
    BARRIER = "barrier"
    PASS = "pass"
    CLOSE = "close"
    END = "end"

    @property
    def is_step(self) -> bool:
        return self in _STEPS


_STEPS = frozenset({Kind.TASK, Kind.WAIT, Kind.CHILD})


class Running(StrEnum):
    """What a halt does to the steps that are running: let them finish, or tell them to stop."""

    FINISH = "finish"
    CANCEL = "cancel"


class Strategy(StrEnum):
    """What a failed step does to the rest of the run."""

    HALT = "halt"
    CONTINUE = "continue"
    IGNORE = "ignore"
    OPTIONAL = "optional"


@dataclass(frozen=True, slots=True)
class StepOptions:
    """How one step runs. `job`: what the queue understands, such as priority, as JSON; where `.options()` says
    nothing, as its task said when the pipeline was defined, so that it is the same wherever the step is made.
    `max_fanout` is an expand's."""

    delay: float | None = None
    on_failure: Strategy | None = None
    max_fanout: int | None = None
    job: Mapping[str, JsonValue] = field(default_factory=dict)

    def to_json(self) -> dict[str, JsonValue]:
        stored: dict[str, JsonValue] = {}
        if self.delay is not None:
            stored["delay"] = self.delay
        if self.on_failure is not None:
            stored["on_failure"] = self.on_failure.value
        if self.max_fanout is not None:
            stored["max_fanout"] = self.max_fanout
        if self.job:
            stored["job"] = dict(self.job)
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, JsonValue]) -> StepOptions:
        strategy = cast("str | None", stored.get("on_failure"))
        return cls(
            delay=cast("float | None", stored.get("delay")),
            on_failure=Strategy(strategy) if strategy else None,
            max_fanout=cast("int | None", stored.get("max_fanout")),
            job=cast("dict[str, JsonValue]", stored.get("job", {})),
        )


@dataclass(frozen=True, slots=True)
class Node:
    """One place in the graph.

    `target` is the task, the pipeline or the signal it stands for; `scope` are the expands it is inside,
    outermost first; `arm` is the innermost arm it belongs to, as (switch, number); `arms` are a switch's
    labels, None standing for `otherwise`; `quorum` is how many inputs a `first` waits for.
    """

    key: str
    kind: Kind
    target: str = ""
    args: tuple[Expr, ...] = ()
    kwargs: tuple[tuple[str, Expr], ...] = ()
    after: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    arm: tuple[str, int] | None = None
    arms: tuple[str | None, ...] = ()
    wait: Wait | None = None
    options: StepOptions = StepOptions()
    quorum: int = 1

    @property
    def depth(self) -> int:
        return len(self.scope)

    @property
    def is_entry(self) -> bool:
        """Whether it is the step that an expand hands its elements to."""
        return any(isinstance(expr, Element) for expr in self.args)

    @property
    def reads(self) -> tuple[str, ...]:
        """The nodes whose values it uses, each once, in the order of use."""
        expressions = [*self.args, *[expr for _, expr in self.kwargs]]
        return tuple(dict.fromkeys([key for expr in expressions for key in outputs_in(expr)]))

    def to_json(self) -> dict[str, JsonValue]:
        stored: dict[str, JsonValue] = {"key": self.key, "kind": self.kind.value}
        if self.target:
            stored["target"] = self.target
        if self.args:
            stored["args"] = [to_json(expr) for expr in self.args]
        if self.kwargs:
            stored["kwargs"] = {name: to_json(expr) for name, expr in self.kwargs}
        for name in ("after", "scope", "arm", "arms"):
            value = getattr(self, name)
            if value:
                stored[name] = list(value)
        if self.wait is not None:
            stored["wait"] = self.wait.to_json()
        if options := self.options.to_json():
            stored["options"] = options
        if self.quorum > 1:
            stored["quorum"] = self.quorum
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, JsonValue]) -> Node:
        raw = cast("dict[str, list[JsonValue]]", stored)
        kwargs = cast("dict[str, dict[str, JsonValue]]", stored.get("kwargs", {}))
        arm = cast("list[str | int]", stored.get("arm"))
        return cls(
            key=cast(str, stored["key"]),
            kind=Kind(cast(str, stored["kind"])),
            target=cast(str, stored.get("target", "")),
            args=tuple([from_json(cast("dict[str, JsonValue]", expr)) for expr in raw.get("args", [])]),
            kwargs=tuple(sorted([(name, from_json(expr)) for name, expr in kwargs.items()], key=_first)),
            after=cast("tuple[str, ...]", tuple(raw.get("after", []))),
            scope=cast("tuple[str, ...]", tuple(raw.get("scope", []))),
            arm=cast("tuple[str, int]", tuple(arm)) if arm else None,
            arms=cast("tuple[str | None, ...]", tuple(raw.get("arms", []))),
            wait=Wait.from_json(raw["wait"]) if "wait" in raw else None,
            options=StepOptions.from_json(cast("dict[str, JsonValue]", stored.get("options", {}))),
            quorum=cast(int, stored.get("quorum", 1)),
        )


@dataclass(frozen=True)
class Definition:
    """A whole pipeline. Nodes are in the order of their keys, so that both spellings give the same text."""

    name: str
    params: tuple[str, ...]
    nodes: tuple[Node, ...]
    result: Expr = NOTHING
    on_failure: Strategy = Strategy.HALT
    max_fanout: int | None = None
    deadline: float | None = None
    callbacks: tuple[tuple[str, tuple[Callback, ...]], ...] = ()
    max_steps: int | None = None
    halt_running: Running = Running.FINISH

    @cached_property
    def by_key(self) -> Mapping[str, Node]:
        return {node.key: node for node in self.nodes}

    @cached_property
    def text(self) -> str:
        """The canonical JSON that is stored."""
        stored: dict[str, JsonValue] = {
            "format": FORMAT,
            "name": self.name,
            "params": list(self.params),
            "nodes": [node.to_json() for node in self.nodes],
            "result": to_json(self.result),
            "on_failure": self.on_failure.value,
            "max_fanout": self.max_fanout,
            "deadline": self.deadline,
            "callbacks": {event: [one.to_json() for one in told] for event, told in self.callbacks},
        }
        # What came later is written only where it is used: definitions from before keep their hashes.
        if self.max_steps is not None:
            stored["max_steps"] = self.max_steps
        if self.halt_running is not Running.FINISH:
            stored["halt_running"] = self.halt_running.value
        return canonical(stored)

    @cached_property
    def hash(self) -> str:
        """The identity of this definition, equal on every boot and host."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def signs(self) -> bool:
        """Whether somebody is reminded with a token, for which there must be a secret."""
        waits = [node.wait for node in self.nodes if node.wait is not None]
        return any(wait.remind is not None and wait.remind.signs for wait in waits)

    @classmethod
    def from_text(cls, text: str) -> Definition:
        """Read a stored definition."""
        stored = json.loads(text)
        if stored["format"] != FORMAT:
            raise ValueError(f"definition format {stored['format']} is not known to this version of Penstock")
        return cls(
            name=stored["name"],
            params=tuple(stored["params"]),
            nodes=tuple([Node.from_json(node) for node in stored["nodes"]]),
            result=from_json(stored["result"]),
            on_failure=Strategy(stored["on_failure"]),
            max_fanout=stored["max_fanout"],
            deadline=stored["deadline"],
            callbacks=tuple(
                [
                    (event, tuple([Callback.from_json(one) for one in told]))
                    for event, told in sorted(stored["callbacks"].items())
                ]
            ),
            max_steps=stored.get("max_steps"),
            halt_running=Running(stored.get("halt_running", Running.FINISH)),
        )


def _first(pair: tuple[str, Expr]) -> str:
    return pair[0]
