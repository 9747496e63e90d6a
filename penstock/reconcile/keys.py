"""Keys of rows: the order of them, and a text of its own for each, where there is room for a text only."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

from penstock.reconcile.columns import OWNER_LENGTH
from penstock.reconcile.target import Key
from penstock.values.lengths import KEY_LENGTH

DIGEST = 16


def in_order(keys: Iterable[Key]) -> list[Key]:
    """The one order in which rows are locked; of keys that cannot be compared, such as enumerations, by their text."""
    given = list(keys)
    try:
        return sorted(given)
    except TypeError:
        return sorted(given, key=repr)


def key_text(key: Key) -> str:
    """A key as people read it."""
    return _shortened(_joined(key), KEY_LENGTH)


def owner_of(reconciler: str, key: Key) -> str:
    """Who holds or wants a related row: a reconciler, for one of its rows."""
    return _shortened(f"{reconciler}:{_joined(key)}", OWNER_LENGTH)


def _joined(key: Key) -> str:
    parts = [str(part) for part in key]
    if len(parts) > 1:
        parts = [part.replace("\\", "\\\\").replace("/", "\\/") for part in parts]
    return "/".join(parts)


def _shortened(text: str, length: int) -> str:
    """Texts that begin alike differ in the digest."""
    if len(text) <= length:
        return text
    return f"{text[: length - DIGEST - 1]}~{sha256(text.encode()).hexdigest()[:DIGEST]}"
