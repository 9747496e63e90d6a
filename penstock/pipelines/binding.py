"""Arguments for a run that keeps a definition which is not the app's of now, such as a revived one.

Its steps know its parameters by the names they had then, and the app's signature may have others by now. So what the
run is given is bound to the definition: by position in the order of its parameters, or by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from penstock.errors import ArgumentError, ReviveError
from penstock.pipelines.definition import Definition
from penstock.values.codec import encode
from penstock.values.jsontext import dumps, limited, loads
from penstock.values.layout import KEYWORDS, REST


def of_step(
    definition: Definition, pipeline: Any, args: Sequence[object], kwargs: Mapping[str, object], earlier: str
) -> str:
    """The arguments of a child run from raw values; `earlier`: what a child at its place was given, with defaults."""
    known = cast("dict[str, object]", loads(earlier))
    values = {**known, **_bound(definition, args, kwargs)}
    _require(definition, values)
    return _text(definition, pipeline, values)


def of_revival(
    run: str, definition: Definition, pipeline: Any, args: Sequence[object], kwargs: Mapping[str, object]
) -> str:
    """New arguments for a run that is revived with its own definition; raises `ReviveError`."""
    try:
        given = _bound(definition, args, kwargs)
        values = {
            **pipeline.defaults(),
            **{name: _raw(pipeline, name, value) for name, value in given.items()},
        }
        _require(definition, values)
    except ArgumentError as error:
        own, other = ", ".join(definition.params), ", ".join(pipeline.definition.params)
        raise ReviveError(
            f"run {run} keeps its definition, with the parameters ({own}): {error}. Give args= for those, or "
            f"definition='current' and args= for ({other})"
        ) from error
    return _text(definition, pipeline, values)


def _bound(definition: Definition, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, object]:
    params = definition.params
    names = [name for name in params if name not in (REST, KEYWORDS)]
    places = list(params[: params.index(REST)]) if REST in params else names
    bound = dict(zip(places, args, strict=False))
    rest = list(args[len(places) :])
    extra: dict[str, object] = {}
    for name, value in kwargs.items():
        if name in bound:
            raise ArgumentError(definition.name, "given twice, by position and by name", name)
        (bound if name in names else extra)[name] = value
    if rest and REST not in params:
        raise ArgumentError(
            definition.name, f"takes {len(names)} arguments, but {len(args)} were given by position"
        )
    if extra and KEYWORDS not in params:
        raise ArgumentError(definition.name, "there is no such parameter", next(iter(extra)))
    return bound | ({REST: rest} if rest else {}) | ({KEYWORDS: extra} if extra else {})


def _require(definition: Definition, values: Mapping[str, object]) -> None:
    for name in definition.params:
        if name not in values:
            raise ArgumentError(definition.name, "missing, and there is no default for it", name)


def _raw(pipeline: Any, name: str, value: object) -> object:
    """As its annotation says, if the app still has a parameter of that name; else as a value without one."""
    if name in pipeline.codec.parameters:
        return loads(pipeline.codec.encode_value_for(name, value))
    return loads(encode(value, name=f"argument {name!r} of {pipeline.name}"))


def _text(definition: Definition, pipeline: Any, values: Mapping[str, object]) -> str:
    limit = pipeline.host.settings.payload_limit
    raw = {name: values[name] for name in definition.params}
    return limited(dumps(raw), limit, f"the argument list of {definition.name}")
