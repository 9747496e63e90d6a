"""A task's signature: its arguments and result as typed JSON text.

Stored arguments are one object by parameter name, `{"order_id": 9182}`; what goes into `*args` and `**kwargs`
is kept under "*" and "**". Defaults are not stored: a job enqueued before a default changed gets the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile

from penstock.errors import ArgumentError, SerializationError
from penstock.values.fork_safety import cached_property
from penstock.values.typed_json.converter import ANYTHING, Mismatch, TypeConverter
from penstock.values.typed_json.json_text import dumps, limited, loads
from penstock.values.typed_json.parameters import KEYWORDS, REST, Parameters
from penstock.values.typed_json.tags import TAG_START, has_missing

Arguments = tuple[list[object], dict[str, object]]


class Signature:
    """The arguments and the result of a task as JSON.

    Nothing is looked at before the first use, so that annotations may name what is declared later.
    `returns=False`: the return annotation says nothing about a value that is stored.
    """

    def __init__(self, function: Callable[..., object], name: str, *, returns: bool = True) -> None:
        self._function = function
        self._returns = returns
        self.name = name

    @classmethod
    def of(cls, function: Callable[..., object], name: str | None = None) -> Signature:
        return cls(function, name or f"{function.__module__}.{function.__qualname__}")

    def build(self) -> None:
        """Look at every annotation now; raises `DefinitionError` for one that cannot be stored."""
        _ = self._layout

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters, in order, without `*args` and `**kwargs`."""
        return self._layout.names

    def encode_arguments(
        self, args: Sequence[object], kwargs: Mapping[str, object], *, limit: int | None = None
    ) -> str:
        """The JSON text of a call's arguments, checked against the signature; raises `ArgumentError`."""
        layout = self._layout
        named, rest, extra = layout.bind(args, kwargs)
        raw: dict[str, object] = {}
        for name, value in named.items():
            shape = layout.shapes[name]
            raw[name] = value if type(value) in shape.as_is else self._write(name, shape, value)
        if rest:
            raw[REST] = [self._write(layout.rest_name, layout.shapes[REST], value) for value in rest]
        if extra:
            raw[KEYWORDS] = {name: self._write(name, layout.shapes[KEYWORDS], extra[name]) for name in extra}
        return limited(self._dump_arguments(raw), limit, f"the argument list of {self.name}")

    def decode_arguments(self, text: str) -> Arguments:
        """The positional and keyword arguments stored in a text; raises `ArgumentError`."""
        raw = loads(text)
        layout = self._layout
        if isinstance(raw, dict) and raw.keys() == layout.whole:
            return [], self._read_whole(raw, text)
        if not isinstance(raw, dict):
            raise ArgumentError(self.name, "the stored arguments are not an object by parameter name")
        rest = raw.pop(REST, ())
        extra = raw.pop(KEYWORDS, {})
        layout.check_stored(raw.keys())
        return self._read_call(raw, rest, extra, tagged=TAG_START in text)

    def by_position(self, named: Mapping[str, object]) -> list[object]:
        """Those of the arguments that can be given by position, in the order of their parameters."""
        return [named[name] for name in takewhile(named.__contains__, self._layout.positional_names)]

    def decode_call(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Arguments:
        """Arguments for a call from raw values (`loads` of stored outputs), each by its parameter."""
        named, rest, extra = self._layout.bind(args, kwargs)
        return self._read_call(named, rest, extra, tagged=True)

    def restated(self, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
        """Raw values for a call as `encode_arguments` stores them: by parameter, each as its annotation writes it."""
        layout = self._layout
        named, rest, extra = layout.bind(args, kwargs)
        raw = {name: self._restate(name, layout.shapes[name], value) for name, value in named.items()}
        if rest:
            raw[REST] = [self._restate(layout.rest_name, layout.shapes[REST], value) for value in rest]
        if extra:
            shape = layout.shapes[KEYWORDS]
            raw[KEYWORDS] = {name: self._restate(name, shape, value) for name, value in extra.items()}
        return raw

    def raw_arguments(
        self, text: str, call: tuple[Sequence[object], Mapping[str, object]] | None = None
    ) -> dict[str, object]:
        """Raw values by parameter name, as they are stored in a text or given for a call; without defaults."""
        if call is not None:
            return self._layout.bind(*call)[0]
        raw = loads(text)
        return {name: raw[name] for name in self.parameters if name in raw} if isinstance(raw, dict) else {}

    def check_call(self, positional: int, keywords: Iterable[str] = ()) -> None:
        """Raise `ArgumentError` unless a call with this number of positional and these keyword arguments fits."""
        self._layout.bind((None,) * positional, dict.fromkeys(keywords))

    def encode_value_for(self, parameter: str | int, value: object) -> str:
        """The JSON text of one argument, by its parameter's name or position."""
        name, shape = self._layout.find(parameter)
        return dumps(self._write(name, shape, value))

    def decode_value_for(self, parameter: str | int, raw: object) -> object:
        """One argument from a raw value (`loads` of a stored output), by its parameter's name or position."""
        name, shape = self._layout.find(parameter)
        return self._read(name, shape, raw, tagged=True)

    def takes_stream(self, parameter: str | int) -> bool:
        """Whether the parameter is annotated as an iterator or iterable, and so need not be given a whole list."""
        return self._layout.find(parameter)[1].takes_stream

    def encode_result(self, value: object, *, limit: int | None = None, apart: bool = False) -> str:
        """The JSON text of a result; raises `SerializationError`.

        `apart`: it is not what the function returns. One that returns None says nothing about it.
        """
        try:
            shape = ANYTHING if apart and self._result.is_nothing else self._result
            text = dumps(value if type(value) in shape.as_is else shape.write(value))
        except (Mismatch, SerializationError) as error:
            advice = (
                "" if self._layout.result_annotated else ". Annotate the return type, or return plain values"
            )
            raise SerializationError(f"the result of {self.name}: {error}{advice}") from None
        return limited(text, limit, f"the result of {self.name}")

    def decode_result(self, text: str) -> object:
        """The result stored in a text, as the return annotation says; raises `SerializationError`."""
        shape = ANYTHING if self._result.is_nothing else self._result
        try:
            return shape.read(loads(text), TAG_START in text)
        except Mismatch as error:
            raise SerializationError(f"the stored result of {self.name}: {error}") from None

    @cached_property
    def _layout(self) -> Parameters:
        return Parameters.of(self._function, self.name, returns=self._returns)

    @property
    def _result(self) -> TypeConverter:
        return self._layout.result

    def _read_whole(self, raw: dict[str, object], text: str) -> dict[str, object]:
        """Read arguments in the form that nearly every job has: each parameter once, by name."""
        shapes = self._layout.shapes
        for name, value in raw.items():
            shape = shapes[name]
            if type(value) not in shape.as_is:
                raw[name] = self._read(name, shape, value, TAG_START in text)
        return raw

    def _read_call(
        self,
        named: Mapping[str, object],
        rest: Sequence[object],
        extra: Mapping[str, object],
        *,
        tagged: bool,
    ) -> Arguments:
        layout = self._layout
        values: dict[str, object] = {}
        for name, raw in named.items():
            shape = layout.shapes[name]
            values[name] = raw if type(raw) in shape.as_is else self._read(name, shape, raw, tagged)
        by_position = layout.positional_names if rest else layout.by_position
        args = [values.pop(name) for name in takewhile(values.__contains__, by_position)]
        if rest:
            args += [self._read(layout.rest_name, layout.shapes[REST], raw, tagged) for raw in rest]
        for name in extra:
            values[name] = self._read(name, layout.shapes[KEYWORDS], extra[name], tagged)
        return args, values

    def _write(self, name: str, shape: TypeConverter, value: object) -> object:
        try:
            return shape.write(value)
        except Mismatch as error:
            raise ArgumentError(self.name, self._advise(name, str(error)), name) from None

    def _restate(self, name: str, shape: TypeConverter, raw: object) -> object:
        value = self._read(name, shape, raw, tagged=True)
        # A missing value stays missing: the annotation need not allow None.
        return raw if has_missing(raw) else self._write(name, shape, value)

    def _read(self, name: str, shape: TypeConverter, raw: object, tagged: bool) -> object:
        try:
            return shape.read_argument(raw, tagged)
        except Mismatch as error:
            raise ArgumentError(self.name, str(error), name) from None

    def _advise(self, name: str, problem: str) -> str:
        if name in self._layout.annotated:
            return problem
        return f"{problem}. Annotate the parameter {name!r}, or pass plain values"

    def _dump_arguments(self, raw: dict[str, object]) -> str:
        try:
            return dumps(raw)
        except SerializationError:
            self._find_unwritable(raw)
            raise

    def _find_unwritable(self, raw: dict[str, object]) -> None:
        # Each argument is tried by itself only after writing all of them has failed.
        for name, value in raw.items():
            try:
                dumps(value)
            except SerializationError as error:
                raise ArgumentError(self.name, str(error), name) from None
