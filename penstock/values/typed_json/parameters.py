"""A function's parameters, laid out for binding calls to them and for reading what was stored for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, get_origin

import typing_extensions

from penstock.errors import ArgumentError, DefinitionError
from penstock.values.parse import nearest
from penstock.values.plain import counted, were
from penstock.values.typed_json.annotations import describe, resolve, without_requests
from penstock.values.typed_json.converter import TypeConverter

REST = "*"
KEYWORDS = "**"

Bound = tuple[dict[str, object], Sequence[object], dict[str, object]]


@dataclass(frozen=True, slots=True)
class Parameters:
    """Names and shapes of a function's parameters; `*args` is under "*", `**kwargs` under "**".

    `simple` is how many arguments a call has that gives every parameter by position; -1 if none can.
    """

    task: str
    names: tuple[str, ...]
    positional_names: tuple[str, ...]
    positional_only_names: tuple[str, ...]
    by_position: tuple[str, ...]
    """Parameters that can only be passed by position, to the function or to its decorator."""
    keyword_names: frozenset[str]
    required: tuple[str, ...]
    whole: frozenset[str] | None
    """If exactly these names are stored, all arguments can be passed by name."""
    rest_name: str
    simple: int
    shapes: Mapping[str, TypeConverter]
    annotated: frozenset[str]
    result: TypeConverter
    result_annotated: bool

    @classmethod
    def of(cls, function: Callable[..., object], task: str, *, returns: bool = True) -> Parameters:
        hints = resolve(function, task)
        if not returns:
            hints.pop("return", None)
        parameters = _parameters(function, task)
        kinds = {kind: [p.name for p in parameters if p.kind is kind] for kind in _KINDS}
        variadic = {*kinds[Parameter.VAR_POSITIONAL], *kinds[Parameter.VAR_KEYWORD]}
        named = [parameter for parameter in parameters if parameter.name not in variadic]
        positional = kinds[Parameter.POSITIONAL_ONLY] + kinds[Parameter.POSITIONAL_OR_KEYWORD]
        by_position = positional if _wants_positions(function, named) else kinds[Parameter.POSITIONAL_ONLY]
        return cls(
            task=task,
            names=tuple(parameter.name for parameter in named),
            positional_names=tuple(positional),
            positional_only_names=tuple(kinds[Parameter.POSITIONAL_ONLY]),
            by_position=tuple(by_position),
            keyword_names=frozenset(kinds[Parameter.POSITIONAL_OR_KEYWORD] + kinds[Parameter.KEYWORD_ONLY]),
            required=tuple(parameter.name for parameter in named if parameter.default is Parameter.empty),
            whole=None if by_position else frozenset(p.name for p in named),
            simple=len(positional) if len(positional) == len(parameters) else -1,
            rest_name=next(iter(kinds[Parameter.VAR_POSITIONAL]), ""),
            shapes={_key(parameter): _shape(parameter, hints, task) for parameter in parameters},
            annotated=frozenset(hints),
            result=_result_shape(hints, task),
            result_annotated="return" in hints,
        )

    def bind(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Bound:
        """Named, further positional and further keyword arguments of a call; raises `ArgumentError`."""
        if not kwargs and len(args) == self.simple:
            return dict(zip(self.positional_names, args, strict=True)), (), {}
        rest = args[len(self.positional_names) :]
        if rest and REST not in self.shapes:
            self._refuse(f"takes {self._positional()}, but {were(len(args))} given")
        named = dict(zip(self.positional_names, args, strict=False))
        extra: dict[str, object] = {}
        for name, value in kwargs.items():
            if name not in self.keyword_names:
                extra[name] = value
            elif name in named:
                self._refuse("given twice, by position and by name", name)
            else:
                named[name] = value
        if extra and KEYWORDS not in self.shapes:
            self._refuse_unexpected(next(iter(extra)))
        if len(named) < len(self.names):
            self._require(named)
        return named, rest, extra

    def check_stored(self, names: Iterable[str]) -> None:
        """Raise `ArgumentError` if arguments stored under these names no longer fit."""
        stored = set(names)
        for name in stored.difference(self.names):
            self._refuse("stored for a parameter that is gone. Keep it until the old jobs are done", name)
        for name in self.required:
            if name not in stored:
                self._refuse("not stored. Give a new parameter a default until the old jobs are done", name)

    def find(self, parameter: str | int) -> tuple[str, TypeConverter]:
        """The name and shape of the parameter that takes a keyword or the argument at a position."""
        if isinstance(parameter, str):
            if parameter not in self.shapes and KEYWORDS not in self.shapes:
                self._refuse_unexpected(parameter)
            return parameter, self.shapes.get(parameter) or self.shapes[KEYWORDS]
        if parameter < len(self.positional_names):
            name = self.positional_names[parameter]
            return name, self.shapes[name]
        if REST not in self.shapes:
            self._refuse(f"takes {self._positional()}, but {were(parameter + 1)} given")
        return self.rest_name, self.shapes[REST]

    def _require(self, named: Mapping[str, object]) -> None:
        missing = [name for name in self.required if name not in named]
        if missing:
            self._refuse(f"missing {', '.join(map(repr, missing))}; it takes ({', '.join(self.names)})")

    def _refuse_unexpected(self, name: str) -> None:
        if name in self.positional_only_names:
            self._refuse("can be given by position only", name)
        self._refuse(
            f"no such parameter; it takes ({', '.join(self.names)}){nearest(name, self.names)}", name
        )

    def _positional(self) -> str:
        count = len(self.positional_names)
        return counted(count, "positional argument") if count else "no positional arguments"

    def _refuse(self, problem: str, parameter: str | None = None) -> None:
        raise ArgumentError(self.task, problem, parameter)


_KINDS = (
    Parameter.POSITIONAL_ONLY,
    Parameter.POSITIONAL_OR_KEYWORD,
    Parameter.VAR_POSITIONAL,
    Parameter.KEYWORD_ONLY,
    Parameter.VAR_KEYWORD,
)


def _parameters(function: Callable[..., object], task: str) -> list[Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except ValueError as error:
        raise DefinitionError(f"{task}: {error}. Wrap it in a function of your own") from None


def _wants_positions(function: Callable[..., object], named: Sequence[Parameter]) -> bool:
    """A decorator may show the signature of what it wraps, and itself take `*args` only, or names of its own."""
    if not inspect.isfunction(function) or not hasattr(function, "__wrapped__"):
        return False
    own = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    names = {parameter.name for parameter in named}
    taken = {p.name for p in own if p.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)}
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in own)
    takes_more = any(
        p.kind is Parameter.POSITIONAL_ONLY or p.name not in names for p in own if _is_required(p)
    )
    return takes_more or not (takes_any or names <= taken)


def _is_required(parameter: Parameter) -> bool:
    variadic = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    return parameter.default is Parameter.empty and not variadic


def _key(parameter: Parameter) -> str:
    if parameter.kind is Parameter.VAR_POSITIONAL:
        return REST
    return KEYWORDS if parameter.kind is Parameter.VAR_KEYWORD else parameter.name


def _shape(parameter: Parameter, hints: Mapping[str, Any], task: str) -> TypeConverter:
    annotation = hints.get(parameter.name, Parameter.empty)
    # `**options: Unpack[SomeTypedDict]` annotates all of them at once, not each one.
    if get_origin(annotation) is typing_extensions.Unpack:
        annotation = Any
    return _compile(annotation, f"parameter {parameter.name!r} of {task}")


def _result_shape(hints: Mapping[str, Any], task: str) -> TypeConverter:
    return _compile(
        without_requests(hints.get("return", Parameter.empty)), f"the return annotation of {task}"
    )


def _compile(annotation: Any, where: str) -> TypeConverter:
    try:
        return TypeConverter(annotation)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise DefinitionError(
            f"{where}: values of type {describe(annotation)} cannot be stored as JSON. Use plain types, "
            f"dataclasses, pydantic models, or Annotated[...] with a serializer and a validator. ({reason})"
        ) from error
