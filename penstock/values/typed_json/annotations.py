"""Prepares annotations for the codec: resolved, without parts that only concern handlers, in a form that pydantic
accepts."""

from __future__ import annotations

import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Callable
from functools import partial, reduce
from operator import or_
from typing import Any, Union, get_args, get_origin

import typing_extensions

from penstock.errors import DefinitionError
from penstock.values.outcome import Cancel, Snooze

_STREAMS = (
    collections.abc.Iterable,
    collections.abc.Iterator,
    collections.abc.Generator,
    collections.abc.AsyncIterable,
    collections.abc.AsyncIterator,
    collections.abc.AsyncGenerator,
)
_UNIONS = (Union, types.UnionType)


def resolve(function: Callable[..., object], task: str) -> dict[str, Any]:
    """A function's annotations by parameter name (and "return"), forward references resolved."""
    try:
        return typing.get_type_hints(annotated_function(function), include_extras=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as error:
        culprit = _unresolvable(function)
        raise DefinitionError(
            f"{culprit} of {task} cannot be resolved: {error}. Import what it names where the task is "
            "declared, at module level and outside TYPE_CHECKING."
        ) from None


def annotated_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function whose annotations describe a callable: of a partial the wrapped function, of an object its
    `__call__`."""
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, type) or hasattr(function, "__annotations__") or inspect.isroutine(function):
        return function
    return type(function).__call__


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(annotated_function(function))


async def waited_for(value: Any) -> Any:
    """Await what a handler returned. A handler that is no `async def` may return an awaitable too."""
    return await value if inspect.isawaitable(value) else value


def without_requests(annotation: Any) -> Any:
    """A return annotation without `Snooze` and `Cancel`, which are requests and never stored."""
    if annotation in (Snooze, Cancel):
        return None
    if get_origin(annotation) not in _UNIONS:
        return annotation
    kept = [part for part in get_args(annotation) if part not in (Snooze, Cancel)]
    return reduce(or_, kept) if kept else None


def stream_of(annotation: Any) -> Any | None:
    """The element type of an iterable, iterator or generator annotation (stored as lists), or None."""
    origin = get_origin(annotation) or annotation
    if not isinstance(origin, type) or origin not in _STREAMS:
        return None
    return (get_args(annotation) or (Any,))[0]


def with_missing_elements(annotation: Any) -> Any:
    """The annotation of a collection with None in the place of any element, at any depth; others as they are."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if not parts or not (origin in (list, dict, collections.abc.Sequence) or origin in _STREAMS):
        return annotation
    *others, element = parts if origin is dict else parts[:1]
    return origin[(*others, Union[with_missing_elements(element), None])]  # noqa: UP007 - of whatever is there


def is_open(annotation: Any) -> bool:
    """Whether it leaves values open: no annotation, Any, object, lists, dicts and unions of these."""
    if annotation in (Any, object, inspect.Parameter.empty, list, dict):
        return True
    match get_origin(annotation), get_args(annotation):
        case (origin, (element,)) if origin is list:
            return is_open(element)
        case (origin, (key, item)) if origin is dict:
            return key is str and is_open(item)
        case (origin, parts) if origin in _UNIONS:
            return all(is_open(part) for part in parts if part is not types.NoneType)
    return False


def modern(annotation: Any) -> Any:
    """The annotation with `typing.TypedDict` classes replaced by equals that pydantic accepts before 3.12."""
    if sys.version_info >= (3, 12):
        return annotation
    return _modern(annotation, {})


def describe(annotation: Any) -> str:
    """The annotation as its author would write it."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return "None" if annotation is types.NoneType else annotation.__qualname__
    if get_origin(annotation) is typing.Annotated:
        return describe(get_args(annotation)[0])
    return str(annotation).replace("typing.", "")


def _modern(annotation: Any, done: dict[Any, Any]) -> Any:
    if typing.is_typeddict(annotation):
        return done[annotation] if annotation in done else _modern_typed_dict(annotation, done)
    origin, args = get_origin(annotation), get_args(annotation)
    if not args or origin in (typing.Literal, typing.Annotated):
        return annotation
    changed = tuple(_modern(part, done) for part in args)
    if changed == args:
        return annotation
    if origin in _UNIONS:
        return reduce(or_, changed)
    return types.GenericAlias(origin, changed)


def _modern_typed_dict(annotation: Any, done: dict[Any, Any]) -> Any:
    done[annotation] = annotation
    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(annotation, include_extras=True).items():
        marker: Any = get_origin(hint)
        if marker in (typing.Required, typing.NotRequired):
            (hint,) = get_args(hint)
        else:
            marker = typing.Required if name in annotation.__required_keys__ else typing.NotRequired
        fields[name] = marker[_modern(hint, done)]
    make: Any = typing_extensions.TypedDict
    made = make(annotation.__name__, fields)
    done[annotation] = made
    return made


def _unresolvable(function: Callable[..., object]) -> str:
    function = annotated_function(function)
    known = getattr(inspect.unwrap(function), "__globals__", {})
    for name, annotation in getattr(function, "__annotations__", {}).items():
        try:
            typing.get_type_hints(types.SimpleNamespace(__annotations__={name: annotation}), known)
        except Exception:
            return "the return annotation" if name == "return" else f"the annotation of parameter {name!r}"
    return "an annotation"
