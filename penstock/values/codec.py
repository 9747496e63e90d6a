"""Values as JSON text with types: the door to the codec; signals, run context and markers go through it.

For arguments and results of a task there is `Signature`, which knows their annotations.
"""

from __future__ import annotations

from penstock.errors import SerializationError
from penstock.values import tags
from penstock.values.jsontext import dumps, limited, loads
from penstock.values.shape import ANYTHING, Mismatch
from penstock.values.signature import Signature

__all__ = ["Signature", "decode", "dumps", "encode", "limited", "loads", "natural"]


def encode(value: object, *, limit: int | None = None, name: str = "the value") -> str:
    """The JSON text of a value that has no annotation; `name` is what a refusal calls it."""
    try:
        text = dumps(ANYTHING.write(value))
    except (Mismatch, SerializationError) as error:
        raise SerializationError(f"{name}: {error}. Pass plain values") from None
    return limited(text, limit, name)


def decode(text: str) -> object:
    """The value behind a stored text: dicts, lists and plain values, times, UUIDs, decimals, bytes."""
    raw = loads(text)
    return tags.read(raw) if tags.TAG_START in text else raw


def natural(raw: object) -> object:
    """The value behind a raw value, as `decode` would give it."""
    return tags.read(raw)
