"""Forms made from a task's signature: a field for each parameter, and arguments from the fields that come back.

A value is written as JSON, as it is stored; where the parameter is annotated as text, as it is. An empty field leaves
the parameter to its default.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

from penstock.dashboard.acts import WrongForm
from penstock.task import Task
from penstock.values.typed_json.json_text import dumps

PREFIX = "arg-"
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
KEYS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}

Known = Task[Any, Any]


def argument_fields(task: Known, values: Mapping[str, object]) -> list[dict[str, object]]:
    """A field for each parameter: its name, type, default and value so far, as texts."""
    fields = []
    for name, parameter in task.signature.parameters.items():
        key = KEYS.get(parameter.kind, name)
        default = parameter.default
        required = default is inspect.Parameter.empty and parameter.kind not in VARIADIC
        fields.append(
            {
                "name": PREFIX + key,
                "label": name if key == name else key + name,
                "type": _type(parameter),
                "required": required,
                "default": None
                if default is inspect.Parameter.empty
                else _written(default, _is_text(parameter)),
                "value": _written(values[key], _is_text(parameter)) if key in values else "",
            }
        )
    return fields


def arguments_of(task: Known, form: Mapping[str, object]) -> tuple[list[object], dict[str, object]]:
    """The arguments of a call from the fields of a form, checked against the signature."""
    raw: dict[str, object] = {}
    for name, parameter in task.signature.parameters.items():
        key = KEYS.get(parameter.kind, name)
        given = form.get(PREFIX + key)
        if given is None or given == "":
            continue
        raw[key] = _read(name, given, _is_text(parameter))
    return task.codec.decode_arguments(dumps(raw))


def _read(name: str, given: object, is_text: bool) -> object:
    """Read a value of a form, which is a text; a program may also send the value itself."""
    if not isinstance(given, str):
        return given
    text = given.replace("\r\n", "\n")
    if is_text:
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise WrongForm(
            f'{name}: {text[:100]!r} is not JSON. Write 12, true, "text", [1, 2] or {{"a": 1}}'
        ) from None


def _written(value: object, is_text: bool) -> str:
    if is_text and isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)


def _is_text(parameter: inspect.Parameter) -> bool:
    return parameter.annotation in (str, "str")


def _type(parameter: inspect.Parameter) -> str:
    if parameter.annotation is inspect.Parameter.empty:
        return ""
    found = parameter.annotation
    return found if isinstance(found, str) else inspect.formatannotation(found)
