"""Whether a value that was read back is still of the types it was written with.

An annotation that names a base class stores only what the base class has: a `Dog` stored as `Animal` would come back as
an `Animal`, with nobody told. So would the wrong member of a union whose members look alike, such as a path beside
`str`. Such a loss is found here, before the value is stored.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING

from penstock.lazy import Lazy

if TYPE_CHECKING:
    import pydantic
else:
    pydantic = Lazy("pydantic")


def lost_type(before: object, after: object) -> tuple[type, type] | None:
    """The first class that is written and the one that would be read instead, or None if nothing is lost."""
    if _equal(before, after):
        return None
    if isinstance(before, PurePath) and isinstance(after, str):
        return type(before), type(after)
    if isinstance(before, Enum) and not isinstance(after, Enum):
        return type(before), type(after)
    if isinstance(before, (set, frozenset)) and not isinstance(after, (set, frozenset)):
        return type(before), type(after)
    if dataclasses.is_dataclass(before) or isinstance(before, pydantic.BaseModel):
        if type(before) is not type(after):
            return type(before), type(after)
        names = _field_names(before)
        return _first((getattr(before, name, None), getattr(after, name, None)) for name in names)
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _first(zip(before.values(), after.values(), strict=False))
    if isinstance(before, (list, tuple, deque)) and isinstance(after, (list, tuple, deque)):
        return _first(zip(before, after, strict=False))
    return None


def _first(pairs: Iterable[tuple[object, object]]) -> tuple[type, type] | None:
    return next(filter(None, (lost_type(before, after) for before, after in pairs)), None)


def _field_names(value: object) -> list[str]:
    if isinstance(value, pydantic.BaseModel):
        return [*type(value).model_fields, *(value.model_extra or ())]
    return [field.name for field in dataclasses.fields(value)]  # type: ignore[arg-type]


def _equal(before: object, after: object) -> bool:
    try:
        return bool(before == after)
    except Exception:
        # Comparing is the user's code too; not being comparable is no loss.
        return False
