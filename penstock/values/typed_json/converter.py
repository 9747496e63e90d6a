"""Writes and reads values of one annotation.

Writing is strict: a value that a type checker would refuse is refused ("5" is no int). Reading is lenient,
because what is read may have been written by another task, or by an older version of this one: an ISO text
will do for a datetime. Every written value is read back before it is stored.
"""

from __future__ import annotations

import dataclasses
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, get_origin
from uuid import UUID

from pydantic_core import PydanticSerializationError, ValidationError, to_jsonable_python

from penstock.errors import SerializationError
from penstock.values.lazy_import import Lazy
from penstock.values.typed_json import tags
from penstock.values.typed_json.annotations import describe, is_open, modern, stream_of, with_missing_elements
from penstock.values.typed_json.tags import Other, Unwritable

if TYPE_CHECKING:
    import pydantic
    from pydantic import TypeAdapter
else:
    pydantic = Lazy("pydantic")


# Whether a value that was read back is still of the types it was written with.
#
# An annotation that names a base class stores only what the base class has: a `Dog` stored as `Animal` would come
# back as
# an `Animal`, with no warning. So would the wrong member of a union whose members look alike, such as a path beside
# `str`. Such a loss is found here, before the value is stored.


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
    has_fields = dataclasses.is_dataclass(before) or isinstance(before, pydantic.BaseModel)
    if has_fields and type(before) is not type(after):
        return type(before), type(after)
    return _first(_parts(before, after))


def lost_field(before: object, after: object) -> str | None:
    """The first field, with its class, that the class itself leaves out when it is written; None: nothing is lost."""
    if _equal(before, after):
        return None
    for name, field in _declared(before).items():
        left_out = getattr(field, "exclude", None) or getattr(field, "exclude_if", None)
        if left_out and not _equal(getattr(before, name, None), getattr(after, name, None)):
            return f"{type(before).__qualname__}.{name}"
    return next(filter(None, (lost_field(*pair) for pair in _parts(before, after))), None)


def _parts(before: object, after: object) -> Iterable[tuple[object, object]]:
    """The parts of two values that are alike, in pairs."""
    if dataclasses.is_dataclass(before) or isinstance(before, pydantic.BaseModel):
        names = _field_names(before) if type(before) is type(after) else []
        return [(getattr(before, name, None), getattr(after, name, None)) for name in names]
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return zip(before.values(), after.values(), strict=False)
    if isinstance(before, (list, tuple, deque)) and isinstance(after, (list, tuple, deque)):
        return zip(before, after, strict=False)
    return ()


def _declared(value: object) -> Mapping[str, object]:
    """The fields of a pydantic model or dataclass, as they were declared."""
    if isinstance(value, pydantic.BaseModel):
        return type(value).model_fields
    return getattr(type(value), "__pydantic_fields__", {})


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


# Values that are read while they are used: a list too long to be held at once, for a parameter that is iterated.


class RawStream(ABC):
    """Raw values, one after the other; each iteration starts from the beginning."""

    @abstractmethod
    def __iter__(self) -> Iterator[object]: ...


class StreamReader:
    """The values of a stream, each converted when it is reached; each iteration starts from the beginning."""

    def __init__(self, raw: RawStream, read: Callable[[object], object]) -> None:
        self._raw = raw
        self._read = read

    def __iter__(self) -> Iterator[object]:
        return map(self._read, self._raw)


_EXACT = frozenset({str, int, bool, float, datetime, date, time, timedelta, UUID, Decimal, bytes, type(None)})


_UNEXPECTED = re.compile(r"PydanticSerializationUnexpectedValue\((.*)\)")


class Mismatch(Exception):
    """A value does not fit an annotation, or cannot be stored under it; says what was expected."""


class TypeConverter:
    """One annotation, compiled. Without an annotation: anything JSON and the tags know."""

    __slots__ = (
        "_adapter",
        "_annotation",
        "_element",
        "_exact",
        "_expected",
        "_open",
        "_origin",
        "_stream",
        "_unchecked",
        "_wanted",
        "as_is",
    )

    def __init__(self, annotation: Any) -> None:
        element = stream_of(annotation)
        self._annotation = annotation
        self._stream = element is not None
        self._element = element
        self._origin = get_origin(annotation) or annotation
        wanted = modern(list[element] if self._stream else annotation)  # type: ignore[valid-type]
        self._expected = describe(annotation)
        kind = type(None) if wanted is None else wanted
        self._exact = kind if isinstance(kind, type) and kind in _EXACT else None
        self._open = is_open(wanted)
        self._unchecked = self._open and get_origin(wanted) is None and wanted not in (list, dict)
        self._wanted = wanted
        # A type that cannot be stored is refused now. For plain types no converter is built before a value of another
        # type comes.
        plain = self._unchecked or self._exact is not None
        self._adapter: TypeAdapter[object] | None = None if plain else _adapter(wanted)
        # Values of these types are their own raw form and need no check: this is the common case, made cheap.
        self.as_is = tags.NATIVE if self._unchecked else tags.NATIVE & {self._exact}

    @property
    def takes_stream(self) -> bool:
        """Whether values may come one after the other."""
        return self._origin is Iterable or self._origin is Iterator

    @property
    def is_nothing(self) -> bool:
        """Whether None is all that it allows."""
        return self._exact is type(None)

    def write(self, value: object) -> object:
        """The raw form of a value; raises `Mismatch`."""
        try:
            if self._unchecked or type(value) is self._exact:
                return tags.write(value, _refuse)
            if self._stream and isinstance(value, Iterable) and not isinstance(value, (str, bytes, list)):
                value = list(value)
            return self._write_checked(self._checker(), value)
        except Unwritable as error:
            raise Mismatch(str(error)) from None

    def read(self, raw: object, tagged: bool = True) -> object:
        """The value behind a raw form; raises `Mismatch`. `tagged=False`: there are no tags to look for."""
        if isinstance(raw, RawStream):
            reading = StreamReader(raw, TypeConverter(self._element).read_argument)
            return reading if self._origin is Iterable else iter(reading)
        try:
            value = tags.read(raw) if tagged else raw
        except SerializationError as error:
            raise Mismatch(str(error)) from None
        if self._unchecked or type(value) is self._exact:
            return value
        try:
            return self._checker().validate_python(value, by_alias=True, by_name=True)
        except Exception as error:
            raise Mismatch(self._explain(error, value)) from None

    def read_argument(self, raw: object, tagged: bool = True) -> object:
        """Likewise, for a handler: where it asks for an iterator, it gets one.

        A value that is missing, also as an element, is None, and passed on although that does not fit.
        """
        try:
            value = self.read(raw, tagged)
        except Mismatch:
            if not tags.has_missing(raw):
                raise
            value = (
                None
                if tags.is_missing(raw)
                else TypeConverter(with_missing_elements(self._annotation)).read(raw)
            )
        return iter(value) if self._origin is Iterator and isinstance(value, list) else value

    def _checker(self) -> TypeAdapter[object]:
        if self._adapter is None:
            self._adapter = _adapter(self._wanted)
        return self._adapter

    def _write_checked(self, adapter: TypeAdapter[object], value: object) -> object:
        try:
            checked = adapter.validate_python(value, strict=True)
        except Exception as error:
            raise Mismatch(self._explain(error, value)) from None
        if self._open:
            return tags.write(value, _refuse)
        raw = self._dump(adapter, value, checked)
        lost = self._lost(raw, checked)
        if lost and issubclass(lost[0], PurePath):
            raw = self._dump(adapter, value, checked, _convert_marking_paths)
            lost = self._lost(raw, checked)
        if lost:
            was, becomes = (kind.__qualname__ for kind in lost)
            raise Mismatch(
                f"a {was} would come back as {becomes}: annotate with {was}, or with a union whose members "
                "can be told apart by a Literal field"
            )
        return raw

    def _lost(self, raw: object, checked: object) -> tuple[type, type] | None:
        """Read what was written, and see what has become of it."""
        try:
            found = self.read(raw)
        except Mismatch as error:
            raise Mismatch(f"it could be written, but not read again: {error}") from None
        if field := lost_field(checked, found):
            raise Mismatch(
                f"the field {field} has exclude=..., and would come back as its default: pass it as an argument of "
                "its own, or leave out exclude="
            )
        return lost_type(checked, found)

    def _dump(
        self, adapter: TypeAdapter[object], value: object, checked: object, convert: Other | None = None
    ) -> object:
        # The value as it was given, so that validators which change a value do so once, when it is read.
        try:
            return _dump(adapter, value, convert or _convert)
        except PydanticSerializationError:
            pass
        try:
            return _dump(adapter, checked, convert or _convert)
        except PydanticSerializationError as error:
            reason = "; ".join(_UNEXPECTED.findall(str(error))) or str(error)
            raise Mismatch(
                f"expected {self._expected}, but the value holds something else: {reason}"
            ) from None

    def _explain(self, error: Exception, value: object) -> str:
        if not isinstance(error, ValidationError):
            # A validator of the user's may raise anything.
            return f"expected {self._expected}, but checking it raised {type(error).__name__}: {error}"
        first = error.errors(include_url=False, include_context=False, include_input=True)[0]
        where = "".join(f"[{part!r}]" for part in first["loc"])
        inside = first["input"] is not value or first["type"] == "missing"
        at = f" at {where}" if where and inside else ""
        return f"expected {self._expected}, got {_show(first['input'])}{at} ({first['msg']})"


ANYTHING = TypeConverter(Any)
"""For values without an annotation."""


def _adapter(annotation: Any) -> TypeAdapter[object]:
    adapter: TypeAdapter[object] = pydantic.TypeAdapter(annotation)
    if not adapter.pydantic_complete:
        # A name in the annotation was not declared when pydantic read it; it must be declared by the first use.
        adapter.rebuild(raise_errors=True)
    return adapter


def _dump(adapter: TypeAdapter[object], value: object, convert: Other) -> object:
    natural = adapter.dump_python(value, by_alias=False, round_trip=True, warnings="error")
    try:
        return tags.write(natural, convert)
    except Unwritable as error:
        if error.kind is None or hasattr(error.kind, "get_secret_value"):
            raise
    # A type with a JSON form of its own, known to pydantic only.
    plain = adapter.dump_python(value, mode="json", by_alias=False, round_trip=True, warnings="error")
    return tags.write(plain, _refuse)


def _refuse(value: object, _depth: int) -> object:
    if type(value) is dict:
        wrong = next(key for key in value if type(key) is not str)
        raise Unwritable(
            f"dict keys must be str without an annotation that says otherwise, not {_show(wrong)}"
        )
    if type(value) is range:
        return list(value)
    raise Unwritable(
        f"{_kind(value)} cannot be stored as JSON without an annotation that says its type", type(value)
    )


def _convert(value: object, depth: int) -> object:
    """Under an annotation, which will say how to read it, more types have a raw form."""
    return _converted(value, depth, _convert)


def _convert_marking_paths(value: object, depth: int) -> object:
    """Likewise, where the annotation does not say whether it is a path or a text."""
    if isinstance(value, PurePath):
        return tags.write_as(PurePath, value)
    return _converted(value, depth, _convert_marking_paths)


def _converted(value: object, depth: int, convert: Other) -> object:
    match value:
        case Enum():
            return tags.write_exactly(value.value, _refuse, depth)
        case dict():
            return _convert_dict(value, depth, convert)
        case list() | tuple() | set() | frozenset() | deque():
            return tags.write(list(value), convert, depth)
        case str() | PurePath():
            return str(value)
        case int() | float():
            return tags.write(int(value) if isinstance(value, int) else float(value), _refuse)
    for kind in tags.TAGGED:
        if isinstance(value, kind):
            return tags.write_as(kind, value)
    if hasattr(value, "get_secret_value"):
        raise Unwritable("secrets are not stored: pass a reference to the secret instead", type(value))
    try:
        return to_jsonable_python(value)
    except (PydanticSerializationError, ValueError):
        raise Unwritable(f"{_kind(value)} cannot be stored as JSON", type(value)) from None


def _convert_dict(value: dict[object, object], depth: int, convert: Other) -> object:
    if all(isinstance(key, str) and not isinstance(key, Enum) for key in value):
        return tags.write({str(key): item for key, item in value.items()}, convert, depth)
    return tags.write_pairs(value, convert, depth)


def _kind(value: object) -> str:
    return f"a value of type {type(value).__qualname__}"


def _show(value: object) -> str:
    if value is None or value is True or value is False:
        return repr(value)
    if isinstance(value, (str, int, float)):
        text = repr(value)
        return f"{type(value).__qualname__} {text if len(text) <= 60 else text[:57] + '...'}"
    return type(value).__qualname__
