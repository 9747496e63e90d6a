"""Mutants: the package with one thing broken. The checker has to notice every one of them.

A mutant names a function or a statement, the text in it that matters, and what stands there instead. The text must
be found exactly once: a mutant that no longer fits the code says so instead of passing unnoticed. Each has the seed
of a schedule that shows it; when the code takes other steps, `python -m tests.simulation.mutants` finds another.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from tests.simulation.temper import Lean


@dataclass(frozen=True, slots=True)
class Code:
    """A change in a function's body, for all of its callers."""

    function: Any
    old: str
    new: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        function = self.function
        assert isinstance(function, FunctionType)
        before = function.__code__
        source = _replaced(textwrap.dedent(inspect.getsource(function)), self.old, self.new)
        made: dict[str, Any] = {}
        exec(
            compile(f"from __future__ import annotations\n{source}", "<mutant>", "exec"),
            function.__globals__,
            made,
        )
        new = made[function.__name__]
        function.__code__ = inspect.unwrap(getattr(new, "fget", new)).__code__
        try:
            yield
        finally:
            function.__code__ = before


@dataclass(frozen=True, slots=True)
class Sql:
    """A change in a statement."""

    module: ModuleType
    name: str
    old: str
    new: str

    @contextmanager
    def applied(self) -> Iterator[None]:
        before = getattr(self.module, self.name)
        setattr(self.module, self.name, _replaced(before, self.old, self.new))
        try:
            yield
        finally:
            setattr(self.module, self.name, before)


@dataclass(frozen=True, slots=True)
class Instead:
    """Another function in the place of one."""

    owner: Any
    name: str
    new: Callable[..., Any]

    @contextmanager
    def applied(self) -> Iterator[None]:
        before = getattr(self.owner, self.name)
        setattr(self.owner, self.name, self.new)
        try:
            yield
        finally:
            setattr(self.owner, self.name, before)


Change = Code | Sql | Instead


class Mutant:
    """The changes that break one thing, and the seed of a schedule that shows it.

    `leaning`: what there is more of in the schedules of its search, so that one in twenty shows it at least.
    """

    def __init__(self, seed: int, *changes: Change, **leaning: float) -> None:
        self.seed = seed
        self.changes = changes
        self.lean: Lean = leaning

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The package is broken in this way until the block ends."""
        with ExitStack() as stack:
            for change in self.changes:
                stack.enter_context(change.applied())
            yield


def _replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1, (
        f"this mutant does not fit any more: {old!r} is there {text.count(old)} times"
    )
    return text.replace(old, new)
