"""What an app says of a pipeline now: its definition, and the defaults of its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.errors import DefinitionError
from penstock.pipelines.definition import Definition
from penstock.values.jsontext import dumps, loads


class Current(NamedTuple):
    """A definition, and raw values for parameters that an older run was not given."""

    definition: Definition
    defaults: Mapping[str, object]

    def arguments(self, stored: str) -> tuple[str, list[str]]:
        """The arguments of an older run for this definition, and what is missing."""
        known = loads(stored)
        assert isinstance(known, dict)
        values = {**self.defaults, **known}
        lacking = [
            f"the parameter {name!r} is new, has no default, and the run was not given it"
            for name in self.definition.params
            if name not in values
        ]
        return dumps({name: values[name] for name in self.definition.params if name in values}), lacking


def current(host: Any, pipeline: str) -> Current:
    """What the app says of this pipeline now."""
    found = host.find_pipeline(pipeline)
    if found is None:
        raise DefinitionError(
            f"this app knows no pipeline {pipeline!r}: there is nothing to compare with. Name its app"
        )
    return Current(found.definition, found.defaults())
