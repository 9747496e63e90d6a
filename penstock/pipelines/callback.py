"""A task that hears of a run's end, as the definition keeps it: whoever ends the run may not know the task."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast, get_origin

from penstock.pipelines.expressions import JsonValue
from penstock.values.jsontext import dumps
from penstock.values.layout import KEYWORDS, REST

ALIASES = {"run": "run_id", "id": "run_id", "name": "signal"}


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
        """For how many seconds it waits when it is enqueued."""
        return cast(float, self.job.get("delay", 0.0))

    def arguments(self, told: Mapping[str, object]) -> tuple[dict[str, object], dict[str, object]]:
        """What it takes of it by name, and what goes to its `**` parameter.

        A task with other parameters only is given all of it, as a dict, in the first one.
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
