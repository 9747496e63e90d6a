"""Turns what a step was called with into expressions, and checks it against the task's signature."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence, Set

from penstock.errors import DefinitionError, PenstockError, SerializationError
from penstock.pipelines.blueprint import Callee
from penstock.pipelines.draft import short_name
from penstock.pipelines.expressions import Const, DictOf, Expr, ListOf
from penstock.pipelines.handles import Handle, expression
from penstock.values.codec import encode
from penstock.values.jsontext import dumps, loads
from penstock.values.signature import Signature


def argument(callee: Callee, where: int | str, value: object) -> Expr:
    """The expression for an argument of a step; a constant is written as its parameter's annotation says."""
    step, codec = short_name(callee.name), getattr(callee, "codec", None)
    if not isinstance(codec, Signature) or handles_in(value):
        return expression_of(step, value)
    try:
        return Const(codec.encode_value_for(where, value))
    except PenstockError as error:
        raise DefinitionError(f"step {step!r}: {error}") from error


def elements(callee: Callee, value: object) -> Expr:
    """The expression for what an expand runs over; constants in it are written as the step's annotation says."""
    step = short_name(callee.name)
    if isinstance(value, Handle | Mapping | Set):
        return expression_of(step, value)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise DefinitionError(
            f"{step}.map({value!r}): a value of type {type(value).__name__} cannot be expanded over. "
            "Give a list or a dict, or a step that returns one"
        )
    items = [argument(callee, 0, item) for item in value]
    if all(isinstance(item, Const) for item in items):
        return Const(dumps([loads(item.text) for item in items if isinstance(item, Const)]))
    return ListOf(tuple(items))


def expression_of(step: str, value: object) -> Expr:
    """The expression for a value: handles may stand anywhere in lists, tuples and dicts."""
    if isinstance(value, Handle):
        return expression(value)
    if not handles_in(value):
        return Const(constant_text(step, value))
    if isinstance(value, Mapping):
        return DictOf(tuple([(_key(step, key), expression_of(step, item)) for key, item in value.items()]))
    assert isinstance(value, (list, tuple))
    return ListOf(tuple([expression_of(step, item) for item in value]))


def handles_in(value: object) -> list[Handle]:
    """The handles in a value, in reading order."""
    if isinstance(value, Handle):
        return [value]
    if isinstance(value, Mapping):
        return [handle for item in value.values() for handle in handles_in(item)]
    if isinstance(value, (list, tuple)):
        return [handle for item in value for handle in handles_in(item)]
    return []


def constant_text(step: str, value: object) -> str:
    """A constant as JSON text."""
    try:
        return encode(value, name=f"step {step!r}: the argument {value!r}")
    except SerializationError as error:
        raise DefinitionError(f"{error}, or make it inside a task") from error


def check_call(
    step: str, signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object]
) -> None:
    """Refuse arguments that do not fit."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise DefinitionError(
            f"step {step!r} is called with arguments it does not take: {error}. Its signature is {signature}"
        ) from error


def accepts(signature: inspect.Signature, count: int) -> bool:
    """Whether a call with `count` positional arguments fits."""
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def _key(step: str, key: object) -> str:
    if not isinstance(key, str):
        raise DefinitionError(f"step {step!r}: a dict that holds steps needs strings as keys, not {key!r}")
    return key
