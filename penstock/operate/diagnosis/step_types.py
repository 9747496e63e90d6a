"""Compares what a step returns with what the next one takes, by their annotations, before anything runs.

Only sure mismatches are reported. Reading is lenient (a text may be read as a number), so an annotation stands for
some sample values: they are written as the one step would write them, and read as the other would read them. If none
can be read, no value of that kind can. An annotation that cannot be sampled, or that runs code of the user's when a
value is read, is left alone.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from penstock.errors import PenstockError
from penstock.pipelines.model.definition import Definition, Node, NodeKind
from penstock.pipelines.model.expressions import DictOf, Element, Expr, ListOf, Output, Param
from penstock.values.typed_json.annotations import describe, resolve, stream_of, without_requests
from penstock.values.typed_json.converter import Mismatch, TypeConverter

UNKNOWN: Any = object()
"""The annotation of a value about which nothing is known."""
MOST_SAMPLES = 12
ID, URL = "0190b0c2-7b1a-7c3e-8a55-0123456789ab", "https://example.org"
SAMPLES: Mapping[Any, Sequence[object]] = {
    bool: [True, False],
    int: [1, 0, 1_700_000_000],
    float: [1.5, 2.0],
    str: ["text", "1", "1.5", "true", "2026-01-31", "2026-01-31T12:00:00+00:00", "12:00", "P1D", ID, URL],
    datetime: [datetime(2026, 1, 31, 12, tzinfo=UTC)],
    date: [date(2026, 1, 31)],
    UUID: [UUID(ID)],
    Decimal: [Decimal("1.5"), Decimal(2)],
}
LISTS = (list, tuple, set, frozenset, Sequence, Set, Iterable, Iterator)
DICTS = (dict, Mapping)
UNIONS = (Union, types.UnionType)


def mismatches(app: Any, pipeline: Any) -> Iterator[str]:
    """A sentence for every argument of a step that can never be read."""
    reading = StepTypes(app, pipeline)
    for node in pipeline.definition.nodes:
        callee = reading.callee(node)
        if callee is None:
            continue
        given = [*enumerate(node.args), *node.kwargs]
        for where, expr in given:
            name, wanted = reading.parameter(callee, where)
            type_given = reading.of(expr, node)
            if never_fits(type_given, wanted):
                yield (
                    f"step {node.key!r} takes {name!r} as {describe(wanted)}, and is given {describe(type_given)}"
                    f"{reading.source(expr)}"
                )


class StepTypes:
    """Finds the annotations of the values in one pipeline."""

    def __init__(self, app: Any, pipeline: Any) -> None:
        self.app = app
        self.definition: Definition = pipeline.definition
        self.parameters: dict[str, Any] = {}
        function = getattr(pipeline, "function", None)
        if function is not None:
            self.parameters = resolve(function, pipeline.name)

    def callee(self, node: Node) -> Any:
        """The task or the child pipeline that the node calls; None if it calls neither, or one that is unknown."""
        if node.kind is NodeKind.TASK:
            return self.app.tasks.get(node.target)
        return self.app.pipelines.get(node.target) if node.kind is NodeKind.CHILD else None

    def parameter(self, callee: Any, where: int | str) -> tuple[str, Any]:
        """The name and the annotation of a parameter."""
        function = getattr(callee, "function", None)
        names = list(callee.signature.parameters)
        named = names[where] if isinstance(where, int) and where < len(names) else where
        plain = callee.signature.parameters.get(named) if isinstance(named, str) else None
        if function is None or plain is None or plain.kind in (plain.VAR_POSITIONAL, plain.VAR_KEYWORD):
            return str(named), UNKNOWN
        return str(named), resolve(function, callee.name).get(plain.name, UNKNOWN)

    def of(self, expr: Expr, node: Node) -> Any:
        """The annotation of an expression, as the node reads it."""
        match expr:
            case Param(name):
                return self.parameters.get(name, UNKNOWN)
            case Output(key):
                return self.returned(self.definition.by_key[key])
            case Element():
                expand = self.definition.by_key[node.scope[-1]]
                return _element(self.of(expand.args[0], expand))
            case ListOf(items):
                return _together([self.of(item, node) for item in items], list)
            case DictOf(pairs):
                return _together([self.of(item, node) for _, item in pairs], dict)
        return UNKNOWN

    def returned(self, node: Node) -> Any:
        """The annotation of a node's value."""
        if node.kind is NodeKind.COLLECT:
            element = self.of(node.args[0], node)
            return UNKNOWN if element is UNKNOWN else _a(list, element)
        task = self.app.tasks.get(node.target) if node.kind is NodeKind.TASK else None
        if task is None:
            return UNKNOWN
        found = without_requests(resolve(task.function, task.name).get("return", UNKNOWN))
        element = stream_of(found)
        return found if element is None else _a(list, element)

    def source(self, expr: Expr) -> str:
        """Where the value comes from, for a message."""
        if isinstance(expr, Output):
            read = self.definition.by_key[expr.node]
            if read.kind is NodeKind.COLLECT and isinstance(read.args[0], Output):
                return f", the values of {read.args[0].node!r}"
            return f", the value of {expr.node!r}"
        return f", the parameter {expr.name!r} of the run" if isinstance(expr, Param) else ""


def never_fits(given: Any, wanted: Any) -> bool:
    """True if no value of the one annotation can be read by the other."""
    values = samples(given)
    if not values or not is_readable(wanted, with_fields=not _holds_dicts(given)):
        return False
    writing, reading = TypeConverter(given), TypeConverter(wanted)
    return not any(_passes(writing, reading, value) for value in values)


def _passes(writing: TypeConverter, reading: TypeConverter, value: object) -> bool:
    try:
        reading.read(writing.write(value))
    except (Mismatch, PenstockError):
        return False
    return True


def samples(annotation: Any) -> list[Any]:
    """Sample values of an annotation; empty if no values of it can be made up."""
    if isinstance(annotation, type) and annotation in SAMPLES:
        return list(SAMPLES[annotation])
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in UNIONS:
        found = [samples(part) for part in parts if part is not types.NoneType]
        return [value for values in found for value in values] if all(found) else []
    if origin in (list, Sequence, Iterable) and parts:
        return [[value] for value in samples(parts[0])[:MOST_SAMPLES]]
    if origin is tuple and parts and parts[-1] is not Ellipsis:
        columns = [samples(part) for part in parts]
        return list(zip(*columns, strict=False)) if all(columns) else []
    if origin in DICTS and len(parts) == 2 and parts[0] is str:
        return [{"a": value} for value in samples(parts[1])[:MOST_SAMPLES]]
    return []


def is_readable(annotation: Any, with_fields: bool) -> bool:
    """True if reading it is Penstock's own work: plain values and collections of them.

    `with_fields`: plain dataclasses and TypedDicts too. A dict may be one, if it has the right keys.
    """
    plain = (*SAMPLES, *LISTS, *DICTS, types.NoneType, Any, object, Ellipsis)
    if any(annotation is each for each in plain):
        return True
    if typing.is_typeddict(annotation) or (
        isinstance(annotation, type) and dataclasses.is_dataclass(annotation)
    ):
        runs_code = hasattr(annotation, "__post_init__") or hasattr(annotation, "__pydantic_fields__")
        return with_fields and not runs_code
    if get_origin(annotation) in (*UNIONS, *LISTS, *DICTS):
        return all(is_readable(part, with_fields) for part in get_args(annotation))
    return False


def _holds_dicts(annotation: Any) -> bool:
    return get_origin(annotation) in DICTS or any(_holds_dicts(part) for part in get_args(annotation))


def _element(annotation: Any) -> Any:
    """The annotation of an element of an expand."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (list, set, frozenset, Sequence, Iterable) and parts:
        return parts[0]
    if origin in DICTS and len(parts) == 2:
        return _a(tuple, *parts)
    return UNKNOWN


def _together(annotations: Sequence[Any], kind: type) -> Any:
    """The annotation of a list or a dict of values that all have one and the same annotation."""
    first = annotations[0]
    if any(each is UNKNOWN or each != first for each in annotations):
        return UNKNOWN
    return _a(list, first) if kind is list else _a(dict, str, first)


def _a(kind: Any, *parts: Any) -> Any:
    """The annotation of a collection."""
    return kind[parts]
