"""Calls of tasks while a pipeline is being described, and the types of the values that pass between its steps.

A type checker sees the same call in two ways. With plain values it is the function's own call. With values of steps
it is a step, and each positional argument has the type of its parameter, or is a step's value of that type.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from penstock.context import building
from penstock.errors import DefinitionError

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
V = TypeVar("V")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
T_co = TypeVar("T_co", covariant=True)
A_contra = TypeVar("A_contra", contravariant=True)
B_contra = TypeVar("B_contra", contravariant=True)
C_contra = TypeVar("C_contra", contravariant=True)


class StepValue(Generic[T_co]):
    """A value that a step of a pipeline will have: to be passed to other steps, or collected."""

    __slots__ = ()

    @abstractmethod
    def collect(self) -> StepValue[list[T_co]]:
        """The values of all elements of the innermost open expand, in element order."""


# `Later[A]`: a value of type A that is not there yet. A step called with plain values only has the type of its plain
# call, which is a coroutine if the task is async. Steps may also stand inside of lists, tuples and dicts.
Later = StepValue[A] | Coroutine[Any, Any, A] | list[Any] | tuple[Any, ...] | dict[str, Any]
Elements = (
    Iterable[A | StepValue[A]]
    | StepValue[Iterable[A]]
    | StepValue[AsyncIterator[A]]
    | Coroutine[Any, Any, Iterable[A]]
    | AsyncIterator[A]
)
Pairs = Mapping[Any, Any] | StepValue[Mapping[Any, Any]] | Coroutine[Any, Any, Mapping[Any, Any]]
Waited = Coroutine[Any, Any, V]
Stream = Iterator[V] | AsyncIterator[V]
"""The type that a generator returns; its values are stored as a list."""


class OneArgument(Protocol[A_contra, T_co]):
    """A task whose function takes a positional argument of this type, and perhaps others."""

    @property
    def function(self) -> Callable[Concatenate[A_contra, ...], T_co]: ...


class TwoArguments(Protocol[A_contra, B_contra, T_co]):
    """A task whose function takes two positional arguments of these types, and perhaps others."""

    @property
    def function(self) -> Callable[Concatenate[A_contra, B_contra, ...], T_co]: ...


class ThreeArguments(Protocol[A_contra, B_contra, C_contra, T_co]):
    """A task whose function takes three positional arguments of these types, and perhaps others."""

    @property
    def function(self) -> Callable[Concatenate[A_contra, B_contra, C_contra, ...], T_co]: ...


class StepCalls(Generic[P, R_co]):
    """The calls of a task. A call with values is the function's own; one inside a pipeline describes a step."""

    name: str

    def __init__(self, function: Callable[P, R_co]) -> None:
        self.function = function

    @overload
    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co: ...

    @overload
    def __call__(self: OneArgument[A, Waited[V]], a: A | Later[A], /, **kwargs: Any) -> StepValue[V]: ...

    @overload
    def __call__(
        self: OneArgument[A, Stream[V]], a: A | Later[A], /, **kwargs: Any
    ) -> StepValue[list[V]]: ...

    @overload
    def __call__(self: OneArgument[A, V], a: A | Later[A], /, **kwargs: Any) -> StepValue[V]: ...

    @overload
    def __call__(
        self: OneArgument[Iterator[A], Waited[V]], a: StepValue[Iterable[A]], /, **kwargs: Any
    ) -> StepValue[V]: ...

    @overload
    def __call__(
        self: OneArgument[Iterator[A], V], a: StepValue[Iterable[A]], /, **kwargs: Any
    ) -> StepValue[V]: ...

    @overload
    def __call__(
        self: TwoArguments[A, B, Waited[V]], a: A | Later[A], b: B | Later[B], /, **kwargs: Any
    ) -> StepValue[V]: ...

    @overload
    def __call__(
        self: TwoArguments[A, B, Stream[V]], a: A | Later[A], b: B | Later[B], /, **kwargs: Any
    ) -> StepValue[list[V]]: ...

    @overload
    def __call__(
        self: TwoArguments[A, B, V], a: A | Later[A], b: B | Later[B], /, **kwargs: Any
    ) -> StepValue[V]: ...

    @overload
    def __call__(
        self: ThreeArguments[A, B, C, Waited[V]],
        a: A | Later[A],
        b: B | Later[B],
        c: C | Later[C],
        /,
        *others: Any,
        **kwargs: Any,
    ) -> StepValue[V]: ...

    @overload
    def __call__(
        self: ThreeArguments[A, B, C, Stream[V]],
        a: A | Later[A],
        b: B | Later[B],
        c: C | Later[C],
        /,
        *others: Any,
        **kwargs: Any,
    ) -> StepValue[list[V]]: ...

    @overload
    def __call__(
        self: ThreeArguments[A, B, C, V],
        a: A | Later[A],
        b: B | Later[B],
        c: C | Later[C],
        /,
        *others: Any,
        **kwargs: Any,
    ) -> StepValue[V]: ...

    @overload
    def __call__(self: StepCalls[P, Waited[V]], /, **kwargs: Any) -> StepValue[V]: ...

    @overload
    def __call__(self: StepCalls[P, Stream[V]], /, **kwargs: Any) -> StepValue[list[V]]: ...

    @overload
    def __call__(self, /, **kwargs: Any) -> StepValue[R_co]: ...

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        builder = building.get()
        if builder is not None:
            return builder.call(self, args, kwargs)
        return self.function(*args, **kwargs)

    @overload
    def map(self: StepCalls[P, Waited[V]], pairs: Pairs, /, *args: Any, **kwargs: Any) -> StepValue[V]: ...

    @overload
    def map(
        self: StepCalls[P, Stream[V]], pairs: Pairs, /, *args: Any, **kwargs: Any
    ) -> StepValue[list[V]]: ...

    @overload
    def map(self, pairs: Pairs, /, *args: Any, **kwargs: Any) -> StepValue[R_co]: ...

    @overload
    def map(
        self: OneArgument[A, Waited[V]], elements: Elements[A], /, *args: Any, **kwargs: Any
    ) -> StepValue[V]: ...

    @overload
    def map(
        self: OneArgument[A, Stream[V]], elements: Elements[A], /, *args: Any, **kwargs: Any
    ) -> StepValue[list[V]]: ...

    @overload
    def map(self: OneArgument[A, V], elements: Elements[A], /, *args: Any, **kwargs: Any) -> StepValue[V]: ...

    def map(self, /, *args: Any, **kwargs: Any) -> Any:
        """In a pipeline: this step once for each element."""
        builder = building.get()
        if builder is None:
            raise DefinitionError(
                f"{self.name}.map(...) describes a step: call it inside an @app.pipeline function"
            )
        return builder.map(self, args, kwargs)
