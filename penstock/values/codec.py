"""Values without annotations as JSON text with types: signals, the run context, what `stop_run()` is given.

For arguments and results of a task there is `Signature`, for `once()` a `Keepsake`: they know the annotations.
"""

from __future__ import annotations

from penstock.errors import SerializationError
from penstock.values import tags
from penstock.values.jsontext import dumps, limited, loads
from penstock.values.shape import ANYTHING, Mismatch


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
