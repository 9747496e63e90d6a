"""Rows of ours, which hold no bytes, from connections that give texts as their owner likes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def as_text(_: Any, row: Sequence[Any]) -> tuple[Any, ...]:
    """A row whose texts are texts; a row factory."""
    return tuple([value.decode() if isinstance(value, bytes | bytearray) else value for value in row])
