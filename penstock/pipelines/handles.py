"""What a step's call returns while a pipeline is being defined: a stand-in for a value to come."""

from __future__ import annotations

from typing import NoReturn, Protocol

from penstock.errors import DefinitionError
from penstock.pipelines.expressions import Expr, Output


class Collector(Protocol):
    """Who made the handle, and can close the expand it is inside."""

    def collect(self, handle: Handle) -> Handle: ...


class Handle:
    """A value of the run to come. It can be passed to steps, and collected; nothing else."""

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
