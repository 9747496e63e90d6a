"""Handles: a step's call returns one while a pipeline is being defined, as a stand-in for a value to come."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence, Set
from typing import Any, NoReturn, Protocol

from penstock.errors import DefinitionError, PenstockError, SerializationError
from penstock.pipelines.define.blueprint import Callee
from penstock.pipelines.define.draft import short_name
from penstock.pipelines.model.expressions import Const, DictOf, Expr, ListOf, Output
from penstock.step_calls import StepValue
from penstock.values.typed_json.json_text import dumps, encode, loads
from penstock.values.typed_json.signature import Signature


class Collector(Protocol):
    """Closes the expand that a handle is inside; the builder that made the handle."""

    def collect(self, handle: Handle) -> Handle: ...


class Handle(StepValue[Any]):
    """The future value of a step. It can only be passed to steps, or collected."""

    __slots__ = ("_builder", "_expr", "_label", "_scope")

    def __init__(self, builder: Collector, expr: Expr, scope: tuple[str, ...], label: str) -> None:
        self._builder = builder
        self._expr = expr
        self._scope = scope
        self._label = label

    def collect(self) -> Handle:
        """The values of all elements of the innermost open expand, as a list in element order."""
        return self._builder.collect(self)

    def __repr__(self) -> str:
        return f"<the value of {self._label}, not known before the run>"

    def __getattr__(self, name: str) -> NoReturn:
        # Tools that inspect objects ask for dunder names and expect AttributeError.
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse(f"it has no attribute {name!r} yet")

    def __bool__(self) -> NoReturn:  # noqa: PLE0304 - it never returns
        self._refuse(
            "it is neither true nor false yet: to branch on it, use switch(value, {...}, otherwise=...)"
        )

    def __iter__(self) -> NoReturn:
        self._refuse("it cannot be iterated yet: to run a step for each element, use task.map(value)")

    def __len__(self) -> NoReturn:  # noqa: PLE0303 - it never returns
        self._refuse("it has no length yet")

    def __getitem__(self, item: object) -> NoReturn:
        self._refuse(f"[{item!r}] cannot be taken from it yet")

    def __call__(self, *_: object, **__: object) -> NoReturn:
        self._refuse("it cannot be called")

    def __await__(self) -> NoReturn:
        self._refuse("there is nothing to await: steps are only described here")

    def __format__(self, spec: str) -> NoReturn:
        self._refuse("it cannot be put into a string yet")

    def __str__(self) -> NoReturn:  # noqa: PLE0307 - it never returns
        self._refuse("it cannot be turned into a string yet")

    def __eq__(self, other: object) -> NoReturn:
        self._refuse("it cannot be compared yet: to branch on it, use switch(value, {...}, otherwise=...)")

    __ne__ = __eq__
    __hash__ = object.__hash__

    def _no_arithmetic(self, *_: object) -> NoReturn:
        self._refuse("it cannot be computed with yet")

    __lt__ = __le__ = __gt__ = __ge__ = _no_arithmetic
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _no_arithmetic
    __mod__ = __rmod__ = __floordiv__ = __rfloordiv__ = __pow__ = __rpow__ = _no_arithmetic
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _no_arithmetic
    __neg__ = __pos__ = __abs__ = __invert__ = __int__ = __float__ = __index__ = _no_arithmetic
    __contains__ = _no_arithmetic

    def _refuse(self, why: str) -> NoReturn:
        raise DefinitionError(
            f"the value of {self._label} is known only when the run has got there; {why}. "
            "What needs the value itself belongs into a task."
        )


def expression(handle: Handle) -> Expr:
    """Where the handle's value will come from."""
    return handle._expr


def scope_of(handle: Handle) -> tuple[str, ...]:
    """The expands the handle is inside, outermost first."""
    return handle._scope


def label_of(handle: Handle) -> str:
    """How messages call the handle."""
    return handle._label


def made_by(handle: Handle, builder: Collector) -> bool:
    """Whether the handle belongs to the definition being built."""
    return handle._builder is builder


def node_of(handle: Handle) -> str | None:
    """The node whose value the handle is; None for a run parameter."""
    return handle._expr.node if isinstance(handle._expr, Output) else None


# Turns the arguments of a step into expressions, and checks them against the task's signature.


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
