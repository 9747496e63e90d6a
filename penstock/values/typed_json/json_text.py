"""JSON text in and out: compact, UTF-8, without NaN, and never what cannot be read again.

"Raw" values are what JSON knows: None, bool, int, float, str, list and dict with str keys.
"""

from __future__ import annotations

from pydantic_core import PydanticSerializationError, from_json, to_json

from penstock.errors import PayloadTooLarge, SerializationError
from penstock.values.typed_json import tags
from penstock.values.typed_json.converter import ANYTHING, Mismatch

# Python's and most other parsers refuse integers of more than 4300 digits. So many in a row fill at least one
# aligned window of this size, which is cheap to look for.
_DIGITS_WINDOW = 2000


def dumps(raw: object) -> str:
    """Raw values as compact JSON text."""
    try:
        text = to_json(raw, inf_nan_mode="constants").decode()
    except PydanticSerializationError as error:
        raise SerializationError(_explain(error)) from None
    if len(text) > _DIGITS_WINDOW and _may_hold_endless_number(text):
        loads(text)
    return text


def loads(text: str) -> object:
    """JSON text as raw values; tags of the codec stay as they are."""
    try:
        value: object = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise SerializationError(f"not JSON that can be read: {error}") from None
    return value


def limited(text: str, limit: int | None, name: str) -> str:
    """The text itself, if it takes no more than `limit` bytes."""
    if limit is not None and len(text) * 4 > limit:
        size = len(text) if text.isascii() else len(text.encode())
        if size > limit:
            raise PayloadTooLarge(name, size, limit)
    return text


def _may_hold_endless_number(text: str) -> bool:
    starts = range(0, len(text) - _DIGITS_WINDOW + 1, _DIGITS_WINDOW)
    return any(text[start : start + _DIGITS_WINDOW].isdigit() for start in starts)


def _explain(error: PydanticSerializationError) -> str:
    if "surrogates not allowed" in str(error):
        return (
            "a string holds a lone surrogate, which is no text: pass bytes, or decode with errors='replace'"
        )
    return str(error)


# Values without annotations as JSON text with types: signals, the run context, what `stop_run()` is given.
#
# Arguments and results of a task have `Signature`, values of `once()` have `OnceValue`: they know the annotations.


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
