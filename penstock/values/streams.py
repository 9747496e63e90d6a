"""Values that are read while they are used: a list too long to be held at once, for a parameter that is iterated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator


class RawStream(ABC):
    """Raw values, one after the other; each walk begins anew."""

    @abstractmethod
    def __iter__(self) -> Iterator[object]: ...


class Reading:
    """The values of a stream, each as its annotation says when its turn comes; each walk begins anew."""

    def __init__(self, raw: RawStream, read: Callable[[object], object]) -> None:
        self._raw = raw
        self._read = read

    def __iter__(self) -> Iterator[object]:
        return map(self._read, self._raw)
