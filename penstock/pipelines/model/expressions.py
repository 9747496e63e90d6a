"""Where a step's argument comes from: a constant, a run parameter, a node's value, or a mix of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias, cast

from penstock.values.typed_json.json_text import loads

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"


@dataclass(frozen=True, slots=True)
class Const:
    """A value fixed in the definition, as JSON text: so that the order of a dict stays what it was."""

    text: str


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the run."""

    name: str


@dataclass(frozen=True, slots=True)
class Output:
    """The value of a node: in the reader's own scope, or in one that encloses it."""

    node: str


@dataclass(frozen=True, slots=True)
class Element:
    """The element that the innermost expand hands to its first step."""


@dataclass(frozen=True, slots=True)
class StepFailed:
    """Whether a step has failed, which is not the same as that it has no value."""

    node: str


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list of expressions."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class DictOf:
    """A dict of expressions."""

    items: tuple[tuple[str, Expr], ...]


Expr: TypeAlias = "Const | Param | Output | Element | StepFailed | ListOf | DictOf"
Leaf: TypeAlias = "Param | Output | Element | StepFailed"

NOTHING = Const("null")


def canonical(value: JsonValue) -> str:
    """The one JSON text of a value: sorted keys, no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def outputs_in(expr: Expr) -> Iterator[str]:
    """Keys of the nodes whose values the expression reads, in reading order."""
    match expr:
        case Output(node) | StepFailed(node):
            yield node
        case ListOf(items):
            for item in items:
                yield from outputs_in(item)
        case DictOf(pairs):
            for _, item in pairs:
                yield from outputs_in(item)


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with every node under its new name."""
    match expr:
        case Output(node):
            return Output(names[node])
        case StepFailed(node):
            return StepFailed(names[node])
        case ListOf(items):
            return ListOf(tuple([renamed(item, names) for item in items]))
        case DictOf(pairs):
            return DictOf(tuple([(key, renamed(item, names)) for key, item in pairs]))
    return expr


def evaluate(expr: Expr, leaf: Callable[[Leaf], object]) -> object:
    """The expression's value, `leaf` giving what depends on the run."""
    match expr:
        case Const(text):
            return loads(text)
        case ListOf(items):
            return [evaluate(item, leaf) for item in items]
        case DictOf(pairs):
            return {key: evaluate(item, leaf) for key, item in pairs}
    return leaf(expr)


def to_json(expr: Expr) -> dict[str, JsonValue]:
    """The expression as JSON, for the stored definition."""
    match expr:
        case Const(text):
            return {"const": text}
        case Param(name):
            return {"param": name}
        case Output(node):
            return {"output": node}
        case Element():
            return {"element": True}
        case StepFailed(node):
            return {"failed": node}
        case ListOf(items):
            return {"list": [to_json(item) for item in items]}
        case DictOf(pairs):
            return {"dict": [[key, to_json(item)] for key, item in pairs]}


def from_json(stored: Mapping[str, JsonValue]) -> Expr:
    """Read what `to_json` wrote."""
    ((kind, value),) = stored.items()
    match kind, value:
        case "const", str(text):
            return Const(text)
        case "param", str(name):
            return Param(name)
        case "output", str(node):
            return Output(node)
        case "element", _:
            return Element()
        case "failed", str(node):
            return StepFailed(node)
        case "list", list(items):
            return ListOf(tuple([from_json(cast("dict[str, JsonValue]", item)) for item in items]))
        case "dict", list(pairs):
            parts = cast("list[tuple[str, dict[str, JsonValue]]]", pairs)
            return DictOf(tuple([(key, from_json(item)) for key, item in parts]))
    raise ValueError(f"not an expression: {stored!r}")


# Paths: the element index in each enclosing expand, outermost first; the empty path is the run's top level.
#
# As text every index has the same width, so the order of the texts is the order of the elements.

Path = tuple[int, ...]

TOP: Path = ()
_DIGITS = 8


def path_text(path: Path) -> str:
    """The path as stored: `(3, 17)` is `"00000003.00000011"`."""
    return ".".join([f"{index:0{_DIGITS}x}" for index in path])


def path_of(text: str) -> Path:
    """Read what `path_text` wrote."""
    return tuple([int(part, 16) for part in text.split(".")]) if text else TOP
