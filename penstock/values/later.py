"""The type of a step's value while a pipeline is being described: it can be passed on, and collected."""

from __future__ import annotations

from typing import Protocol, TypeVar

T = TypeVar("T")


class Later(Protocol[T]):
    """A value that a step will have."""

    def collect(self) -> Later[list[T]]:
        """The values of all elements of the innermost open expand, in element order."""
        ...
