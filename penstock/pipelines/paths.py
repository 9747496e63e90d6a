"""Paths: the element index in each enclosing expand, outermost first; the empty path is the run's top level.

As text every index has the same width, so the order of the texts is the order of the elements.
"""

from __future__ import annotations

Path = tuple[int, ...]

TOP: Path = ()
_DIGITS = 8


def path_text(path: Path) -> str:
    """The path as stored: `(3, 17)` is `"00000003.00000011"`."""
    return ".".join([f"{index:0{_DIGITS}x}" for index in path])


def path_of(text: str) -> Path:
    """Read what `path_text` wrote."""
    return tuple([int(part, 16) for part in text.split(".")]) if text else TOP
