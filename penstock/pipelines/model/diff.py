"""How two definitions differ: steps added, removed and changed, edges, and settings of the whole. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from penstock.errors import DefinitionError
from penstock.pipelines.model.definition import RESERVED, Definition, Node
from penstock.pipelines.model.doors import needs_doors
from penstock.pipelines.model.edges import edges_of
from penstock.pipelines.model.expressions import (
    Const,
    DictOf,
    Element,
    Expr,
    ListOf,
    Output,
    Param,
    StepFailed,
)
from penstock.values.escape import in_line
from penstock.values.typed_json.json_text import dumps, loads

SHORT = 12
"""How many characters of a hash are shown."""
NONE = "none"
ALL_WAIT, EACH_WAITS = "the expand waits for all of them", "each step waits for its own"


@dataclass(frozen=True, slots=True)
class DefinitionChange:
    """One thing that is not the same any more, as people read it."""

    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what}: {self.before} → {self.after}"


@dataclass(frozen=True, slots=True)
class StepChange:
    """A node that is in both definitions and not the same."""

    key: str
    changes: tuple[DefinitionChange, ...]

    def __str__(self) -> str:
        return f"{self.key} ({'; '.join(map(str, self.changes))})"


@dataclass(frozen=True, slots=True)
class Difference:
    """The differences of `after` from `before`; both are hashes. False if there are none.

    Edges lead from step to step, whatever stands between them. Keys that begin with @ are nodes that only steer.
    """

    pipeline: str
    before: str
    after: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[StepChange, ...] = ()
    edges_added: tuple[tuple[str, str], ...] = ()
    edges_removed: tuple[tuple[str, str], ...] = ()
    settings: tuple[DefinitionChange, ...] = ()

    def __bool__(self) -> bool:
        return self.before != self.after

    @property
    def summary(self) -> str:
        """One line: how many steps were added, removed, changed."""
        steps = [key for key in self.added if not key.startswith(RESERVED)]
        gone = [key for key in self.removed if not key.startswith(RESERVED)]
        parts = [(len(steps), "added"), (len(gone), "removed"), (len(self.changed), "changed")]
        told = ", ".join([f"{count} {word}" for count, word in parts if count])
        return told or ("other edges or settings" if self else "no difference")

    def __str__(self) -> str:
        if not self:
            return f"{in_line(self.pipeline)} {self.before[:SHORT]}: no difference"
        lines = [f"{in_line(self.pipeline)} {self.before[:SHORT]} → {self.after[:SHORT]}"]
        lines += [f"+ {key}" for key in self.added]
        lines += [f"- {key}" for key in self.removed]
        lines += [f"~ {change}" for change in self.changed]
        lines += [f"+ {source} → {target}" for source, target in self.edges_added]
        lines += [f"- {source} → {target}" for source, target in self.edges_removed]
        lines += [f"~ {change}" for change in self.settings]
        return "\n".join(lines)


def compare(before: Definition, after: Definition) -> Difference:
    """How `after` differs from `before`."""
    old, new = before.by_key, after.by_key
    edges, others = _edges(before), _edges(after)
    tell = _told([before.result], [after.result])
    return Difference(
        after.name,
        before.hash,
        after.hash,
        tuple(sorted(new.keys() - old.keys())),
        tuple(sorted(old.keys() - new.keys())),
        tuple(
            [
                StepChange(key, changes)
                for key in sorted(old.keys() & new.keys())
                if (changes := changes_of(old[key], new[key]))
            ]
        ),
        tuple(sorted(others - edges)),
        tuple(sorted(edges - others)),
        tuple(_changes(_settings(before, tell), _settings(after, tell))),
    )


def changes_of(old: Node, new: Node) -> tuple[DefinitionChange, ...]:
    """The differences between two versions of a node, options included."""
    before, after = _shapes(old, new)
    return tuple(_changes({**before, **_options(old)}, {**after, **_options(new)}))


def shape_changes(old: Node, new: Node) -> tuple[DefinitionChange, ...]:
    """The same without options, which say how a step runs, not what it is."""
    return tuple(_changes(*_shapes(old, new)))


def shown(expr: Expr, exact: bool = False) -> str:
    """An expression as people read it. `exact`: two that are not the same are never shown alike."""
    match expr:
        case Const(text):
            return text
        case Param(name):
            return f"parameter {name}" if exact else name
        case Output(node):
            return f"output of {node}" if exact else node
        case Element():
            return "an element" if exact else "element"
        case StepFailed(node):
            return f"{node} failed"
        case ListOf(items):
            return f"[{', '.join([shown(item, exact) for item in items])}]"
        case DictOf(pairs):
            named = [(dumps(key) if exact else key, shown(item, exact)) for key, item in pairs]
            return f"{{{', '.join([f'{key}: {item}' for key, item in named])}}}"


def _told(old: Sequence[Expr], new: Sequence[Expr]) -> Callable[[Expr], str]:
    """A function that shows expressions so that these two differ visibly: a parameter may have the name of a step."""
    alike = old != new and [*map(shown, old)] == [*map(shown, new)]
    return partial(shown, exact=alike)


def _shapes(old: Node, new: Node) -> tuple[dict[str, str], dict[str, str]]:
    before, after = [[*node.args, *[expr for _, expr in node.kwargs]] for node in (old, new)]
    tell = _told(before, after)
    return _shape(old, tell), _shape(new, tell)


def _shape(node: Node, tell: Callable[[Expr], str]) -> dict[str, str]:
    arguments = [*map(tell, node.args), *[f"{name}={tell(expr)}" for name, expr in node.kwargs]]
    wait = node.wait
    return {
        "kind": node.kind.value,
        "target": node.target,
        "arguments": f"({', '.join(arguments)})",
        "after": ", ".join(node.after),
        "inside": " in ".join(node.scope),
        "count": "" if node.quorum == 1 else str(node.quorum),
        "arm": "" if node.arm is None else f"{node.arm[0]} {node.arm[1]}",
        "arms": ", ".join(["otherwise" if label is None else repr(label) for label in node.arms]),
        "timeout of the wait": "" if wait is None else f"{wait.timeout}",
        "default of the wait": "" if wait is None or wait.default is None else wait.default,
    }


def _options(node: Node) -> dict[str, str]:
    told = {name: str(value) for name, value in _flat(node.options.to_json())}
    remind = node.wait.remind if node.wait is not None else None
    return (
        told if remind is None else {**told, "reminder": f"{remind.callback.task} every {remind.every:g} s"}
    )


def _flat(options: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for name, value in options.items():
        if name == "job" and isinstance(value, dict):
            yield from value.items()
        else:
            yield name, value


def _settings(definition: Definition, tell: Callable[[Expr], str]) -> dict[str, str]:
    callbacks = {event: ", ".join([one.task for one in told]) for event, told in definition.callbacks}
    return {
        "parameters": ", ".join(definition.params),
        "result": tell(definition.result),
        "on_failure": definition.on_failure.value,
        "max_fanout": str(definition.max_fanout or ""),
        "max_steps": str(definition.max_steps or ""),
        "max_running": str(definition.max_running or ""),
        "deadline": str(definition.deadline or ""),
        "halt_running": definition.halt_running.value,
        "values from outside of an expand": ALL_WAIT if _is_from_before(definition) else EACH_WAITS,
        **{
            f"tasks of {event}" if event == "on_failure" else event: told for event, told in callbacks.items()
        },
    }


def _is_from_before(definition: Definition) -> bool:
    """True if the definition was stored when an expand waited for all that the steps inside use."""
    return not definition.doors and needs_doors(definition)


def _changes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[DefinitionChange]:
    for what in dict.fromkeys([*old, *new]):
        before, after = old.get(what, ""), new.get(what, "")
        if before != after:
            yield DefinitionChange(what, before or NONE, after or NONE)


def _edges(definition: Definition) -> set[tuple[str, str]]:
    """From step to step; nodes that only steer are seen through."""
    into: dict[str, list[str]] = {}
    for edge in edges_of(definition):
        into.setdefault(edge.target, []).append(edge.source)

    def before(key: str, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        for source in into.get(key, ()):
            if not source.startswith(RESERVED):
                yield source
            elif source not in seen:
                yield from before(source, seen | {source})

    steps = [node.key for node in definition.nodes if not node.key.startswith(RESERVED)]
    return {(source, key) for key in steps for source in before(key)}


# A pipeline in the app's present code: its definition, and the defaults of its parameters.


class Current(NamedTuple):
    """A definition, and raw values for parameters that an older run was not given."""

    definition: Definition
    defaults: Mapping[str, object]

    def arguments(self, stored: str) -> tuple[str, list[str]]:
        """The arguments of an older run for this definition, and what is missing."""
        known = loads(stored)
        assert isinstance(known, dict)
        values = {**self.defaults, **known}
        lacking = [
            f"the parameter {name!r} is new, has no default, and the run was not given it"
            for name in self.definition.params
            if name not in values
        ]
        return dumps({name: values[name] for name in self.definition.params if name in values}), lacking


def current(host: Any, pipeline: str) -> Current:
    """The pipeline's definition in the app's code now."""
    found = host.find_pipeline(pipeline)
    if found is None:
        raise DefinitionError(
            f"this app knows no pipeline {pipeline!r}: there is nothing to compare with. Name its app"
        )
    return Current(found.definition, found.defaults())
