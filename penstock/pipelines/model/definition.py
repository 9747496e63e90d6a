"""A pipeline as a value: nodes by key, the same on every boot, stored as canonical JSON under its hash.

A run keeps the definition it started with. Tasks are named in it, not held: a deploy may change what a task
does, never the shape of a run that is under way.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, cast, get_origin

from penstock.errors import PenstockError
from penstock.pipelines.model.expressions import (
    NOTHING,
    Element,
    Expr,
    JsonValue,
    canonical,
    from_json,
    outputs_in,
    to_json,
)
from penstock.values.fork_safety import cached_property
from penstock.values.typed_json.json_text import dumps
from penstock.values.typed_json.parameters import KEYWORDS, REST

# A callback task as the definition stores it: the process that ends the run may not know the task.

ALIASES = {"run": "run_id", "id": "run_id", "name": "signal"}


class DamagedDefinition(PenstockError):
    """A stored definition that is not what was written, or that a newer version wrote."""


@dataclass(frozen=True, slots=True)
class Callback:
    """`takes` are the names of its parameters, `rest` whether it takes any others by name; `job` how it is queued.

    `whole`: its one parameter is given all of it, as a dict. `listed`: it takes what it is told one by one (`*args`).
    """

    task: str
    takes: tuple[str, ...] = ()
    rest: bool = False
    job: Mapping[str, JsonValue] = field(default_factory=dict)
    whole: bool = False
    listed: bool = False

    @classmethod
    def of(cls, task: str, signature: inspect.Signature, job: Mapping[str, JsonValue]) -> Callback:
        parameters = signature.parameters.values()
        named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        rest = any(p.kind is p.VAR_KEYWORD for p in parameters)
        whole = len(named) == 1 and named[0].name == "run" and _is_dict(named[0].annotation)
        listed = not named and not rest and bool(parameters)
        return cls(task, tuple([p.name for p in named]), rest, job, whole, listed)

    @property
    def delay(self) -> float:
        """Seconds that its job is delayed."""
        return cast(float, self.job.get("delay", 0.0))

    def arguments(self, told: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
        """The arguments that the task takes by name, and those that go to its `**` parameter.

        A task with other parameters only gets all of them, as a dict, in its first one.
        """
        if self.listed:
            return {REST: [value for name, value in told.items() if name not in ALIASES]}, {}
        if self.whole:
            return {self.takes[0]: dict(told)}, {}
        given = {
            name: told[ALIASES.get(name, name)] for name in self.takes if ALIASES.get(name, name) in told
        }
        if self.rest:
            return given, {name: value for name, value in told.items() if name not in given}
        if not given and self.takes:
            return {self.takes[0]: dict(told)}, {}
        return given, {}

    def to_json(self) -> dict[str, JsonValue]:
        stored: dict[str, JsonValue] = {"task": self.task}
        if self.takes:
            stored["takes"] = list(self.takes)
        if self.rest:
            stored["rest"] = True
        if self.job:
            stored["job"] = dict(self.job)
        for name, value in (("whole", self.whole), ("listed", self.listed)):
            if value:
                stored[name] = True
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, JsonValue]) -> Callback:
        return cls(
            cast(str, stored["task"]),
            tuple(cast("list[str]", stored.get("takes", []))),
            bool(stored.get("rest", False)),
            cast("dict[str, JsonValue]", stored.get("job", {})),
            bool(stored.get("whole", False)),
            bool(stored.get("listed", False)),
        )


def payload(callback: Callback, told: Mapping[str, object]) -> str:
    """The arguments of its job."""
    given, rest = callback.arguments(told)
    return dumps({**given, KEYWORDS: rest} if rest else given)


def _is_dict(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.partition("[")[0].rpartition(".")[2].lower() in ("dict", "mapping")
    kind = get_origin(annotation) or annotation
    return isinstance(kind, type) and issubclass(kind, Mapping)


# A wait as the definition keeps it: for how long, its value if no signal comes, and the task of its reminders.


@dataclass(frozen=True, slots=True)
class Reminder:
    """A task that is enqueued every `every` seconds while a step waits."""

    every: float
    callback: Callback

    @property
    def signs(self) -> bool:
        """True if the reminder takes a token: then only a process that knows the secret can enqueue it."""
        return "token" in self.callback.takes


@dataclass(frozen=True, slots=True)
class Wait:
    """How long a step waits for its signal, and the value it has if none comes (`default` is JSON text)."""

    timeout: float | None = None
    default: str | None = None
    remind: Reminder | None = None

    def to_json(self) -> list[JsonValue]:
        stored: list[JsonValue] = [self.timeout, self.default]
        if self.remind is not None:
            stored.append({"every": self.remind.every, **self.remind.callback.to_json()})
        return stored

    @classmethod
    def from_json(cls, stored: list[JsonValue]) -> Wait:
        timeout, default, *rest = stored
        remind = None
        if rest:
            told = cast("Mapping[str, JsonValue]", rest[0])
            remind = Reminder(cast(float, told["every"]), Callback.from_json(told))
        return cls(cast("float | None", timeout), cast("str | None", default), remind)


FORMAT = 2
RESERVED = "@"
END = "@end"
CLOSE = "@close."
DOOR = "@door."


class NodeKind(StrEnum):
    """The kind of a node. The first three are steps that users see; the others only steer, and take no job."""

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
    DOOR = "door"
    END = "end"

    @property
    def is_step(self) -> bool:
        return self in _STEPS


_STEPS = frozenset({NodeKind.TASK, NodeKind.WAIT, NodeKind.CHILD})


class Running(StrEnum):
    """The effect of a halt on the steps that are running: let them finish, or tell them to stop."""

    FINISH = "finish"
    CANCEL = "cancel"


class Strategy(StrEnum):
    """The effect of a failed step on the rest of the run."""

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
    kind: NodeKind
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
            kind=NodeKind(cast(str, stored["kind"])),
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
    max_running: int | None = None
    doors: bool = False
    """A step inside an expand waits by itself for what it uses from outside (see `doors`). In definitions from before
    that, and in those where it is all the same, the expand waits for all of it."""

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
        # Newer fields are written only where they are used, so that older definitions keep their hashes.
        if self.max_steps is not None:
            stored["max_steps"] = self.max_steps
        if self.halt_running is not Running.FINISH:
            stored["halt_running"] = self.halt_running.value
        if self.max_running is not None:
            stored["max_running"] = self.max_running
        if self.doors:
            stored["doors"] = True
        return canonical(stored)

    @cached_property
    def hash(self) -> str:
        """The identity of this definition, equal on every boot and host."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def signs(self) -> bool:
        """True if a reminder takes a token, for which there must be a secret."""
        waits = [node.wait for node in self.nodes if node.wait is not None]
        return any(wait.remind is not None and wait.remind.signs for wait in waits)

    @cached_property
    def _has_waits(self) -> bool:
        return any(node.kind is NodeKind.WAIT for node in self.nodes)

    def waits_before(self, key: str) -> list[Node]:
        """The waits right before a step, also through nodes that only steer."""
        found: dict[str, Node] = {}
        seen, left = {key}, [key] if self._has_waits else []
        while left:
            node = self.by_key[left.pop()]
            if node.kind is NodeKind.WAIT and node.key != key:
                found[node.key] = node
            elif node.key == key or not node.kind.is_step:
                left += [other for other in (*node.reads, *node.after) if other not in seen]
                seen.update(left)
        return list(found.values())

    @classmethod
    def from_text(cls, text: str) -> Definition:
        """Read a stored definition; `DamagedDefinition` if that cannot be done."""
        try:
            return cls._read(json.loads(text))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise DamagedDefinition(f"a stored definition cannot be read ({error})") from error

    @classmethod
    def _read(cls, stored: Any) -> Definition:
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
            max_running=stored.get("max_running"),
            doors=stored.get("doors", False),
        )


def _first(pair: tuple[str, Expr]) -> str:
    return pair[0]
