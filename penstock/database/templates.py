"""Statement templates: one text for three databases.

A template is portable SQL with a few marks, rendered once for all databases of one kind and cached:

    {jobs}              a table of ours, with prefix and schema
    {now}               the database's clock, in microseconds since 1970 (or the instant a test has set)
    {lock} {lock_skip}  row locks, where the database has them
    {by_key}            after a table's name: go by its key, where the database might not
    {quote}             before and after a column whose name is a word of one of the databases (see `dialect`)
    {among:ids:uuid}    "is one of" a list parameter
    :name               a parameter
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

MARK = re.compile(r"\{([a-z_]+)(?::([a-z_]+):([a-z]+))?\}|(?<![:\w]):([a-z_][a-z0-9_]*)")

ParamStyle = Literal["pyformat", "named", "numbered"]
ListType = Literal["uuid", "text", "int"]
LIST_TYPES: dict[str, ListType] = {"uuid": "uuid", "text": "text", "int": "int"}
MOST_SHARED = 16
"""So many caches are kept for databases to come: those of schemas, or prefixes, that were used last."""
_SHARED: dict[tuple[object, ...], tuple[dict[str, Rendered], dict[tuple[object, ...], Rendered]]] = {}


@dataclass(frozen=True, slots=True)
class Rendered:
    """Driver SQL, the order of its parameters, and which of them are lists."""

    sql: str
    names: tuple[str, ...]
    lists: Mapping[str, ListType]


@dataclass(slots=True)
class Renderer:
    """Turns templates into the SQL of one database and one driver style."""

    style: ParamStyle
    words: Mapping[str, str]
    among: Callable[[str, ListType], str]
    cache: dict[str, Rendered] = field(default_factory=dict)
    written: dict[tuple[object, ...], Rendered] = field(default_factory=dict)
    """Statements that a dialect has made for batches, by what they write."""

    def share(self, dialect: type) -> None:
        """Use one cache with other renderers of this process that make the same SQL of a template."""
        key = (dialect, self.style, *self.words.values())
        self.cache, self.written = _SHARED.pop(key, (self.cache, self.written))
        _SHARED[key] = self.cache, self.written
        for oldest in list(_SHARED)[:-MOST_SHARED]:
            _SHARED.pop(oldest, None)

    def render(self, template: str) -> Rendered:
        rendered = self.cache.get(template)
        if rendered is None:
            rendered = self.cache[template] = self.make(template)
        return rendered

    def make(self, template: str) -> Rendered:
        """Render without caching."""
        names: dict[str, int] = {}
        lists: dict[str, ListType] = {}

        def parameter(name: str) -> str:
            number = names.setdefault(name, len(names) + 1)
            match self.style:
                case "pyformat":
                    return f"%({name})s"
                case "named":
                    return f":{name}"
                case "numbered":
                    return f"${number}"

        def replace(match: re.Match[str]) -> str:
            word, list_name, list_type, name = match.groups()
            if name:
                return parameter(name)
            if word == "among":
                kind = LIST_TYPES[list_type]
                lists[list_name] = kind
                return self.among(parameter(list_name), kind)
            return escaped(self.words[word])

        def escaped(sql: str) -> str:
            return sql.replace("%", "%%") if self.style == "pyformat" else sql

        return Rendered(MARK.sub(replace, escaped(template)), tuple(names), lists)
