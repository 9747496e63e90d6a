"""Parts of a definition: callees that become steps, and fragments that are attached to a value."""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

from penstock.context import building
from penstock.errors import DefinitionError
from penstock.task import Task
from penstock.task_options import overridden
from penstock.values.fork_safety import cached_property

if TYPE_CHECKING:
    from penstock.pipelines.define.builder import Builder
    from penstock.pipelines.define.handles import Handle
    from penstock.pipelines.model.definition import Definition


@runtime_checkable
class Callee(Protocol):
    """A task, or a pipeline used as a step.

    `overrides` is what `.options()` has set, empty if it was not called.
    """

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> inspect.Signature: ...

    @property
    def overrides(self) -> Mapping[str, object]: ...


TaskOrPipeline = Callee | Task[..., Any]
"""A callee. Tasks are named as well: pyright does not see that their cached properties are properties."""


class Blueprint(ABC):
    """A pipeline as its definers see it: a name, parameters, and a definition that is built on first use."""

    name: str
    overrides: Mapping[str, object]

    @property
    @abstractmethod
    def signature(self) -> inspect.Signature:
        """The parameters of a run."""

    @abstractmethod
    def build(self) -> Definition:
        """Make the definition; raises DefinitionError."""

    @cached_property
    def definition(self) -> Definition:
        """The definition, validated completely."""
        return self.build()

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """In another pipeline: a child run as a step."""
        return self._builder("").call(self, args, kwargs)

    def map(self, /, *args: Any, **kwargs: Any) -> Any:
        """In another pipeline: a child run for each element."""
        return self._builder(".map").map(self, args, kwargs)

    def options(self, **overrides: object) -> Self:
        """The same pipeline with other options, for this run or this step."""
        changed = copy.copy(self)
        changed.overrides = overridden(self.overrides, overrides)
        return changed

    def _builder(self, verb: str) -> Any:
        builder = building.get()
        if builder is None:
            raise DefinitionError(
                f"{self.name}{verb}(...) describes a step of another pipeline; to run it, use "
                f"{self.name}.trigger(...)"
            )
        return builder


class Fragment(ABC):
    """Steps without a beginning of their own: a branch, an arm."""

    @abstractmethod
    def attach(self, builder: Builder, value: Handle) -> Handle:
        """Add the steps behind `value`; their last value."""
