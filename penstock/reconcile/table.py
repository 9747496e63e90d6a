"""A user's table as a reconciler sees it: a declarative model or a Core table, its key, and its rows as values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from hashlib import sha256
from operator import index
from typing import Any
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Integer, Table, Uuid, and_, bindparam, inspect, tuple_
from sqlalchemy.engine import IteratorResult, Row
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.orm import InstanceState, Mapper, RelationshipDirection, make_transient_to_detached
from sqlalchemy.types import Enum, TypeDecorator

from penstock.database.user.statements import among
from penstock.errors import ConfigurationError, DefinitionError
from penstock.reconcile import columns
from penstock.reconcile.columns import OWNER_LENGTH
from penstock.values.parse import KEY_LENGTH

Key = tuple[Any, ...]
Entity = type[Any] | Table
FIXED = frozenset({bool, bytes, date, datetime, Decimal, float, int, str, time, timedelta, UUID})
"""Types whose values cannot be changed in place."""


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A table, and the names that its columns have for the user."""

    entity: Entity
    table: Table
    mapper: Mapper[Any] | None
    columns: Mapping[str, Column[Any]]
    """Attribute name → column."""
    key: tuple[Column[Any], ...]
    key_names: tuple[str, ...]
    key_places: tuple[int, ...]
    """Where the key is among the columns."""
    only: ColumnElement[bool] | None
    """For a model that shares its table with others: the condition of its own rows."""
    changeable: tuple[str, ...]
    """Columns whose values a handler might change in place, such as JSON."""
    stamped: tuple[str, ...]
    """Columns that change with every update, such as the time of the last one."""

    @property
    def name(self) -> str:
        return self.table.fullname

    def __getitem__(self, name: str) -> Column[Any]:
        """One of the columns of ours."""
        return self.table.c[name]

    def require(self, names: Iterable[str]) -> None:
        missing = [name for name in names if name not in self.table.c]
        if missing:
            raise DefinitionError(
                f"{self.name} lacks {', '.join(missing)}. Let the model inherit from penstock.Reconcilable "
                "(Core: *penstock.reconcile.columns.reconcilable_columns()), and see `penstock check`."
            )

    def unstamped(self, names: Iterable[str]) -> dict[str, Column[Any]]:
        """Columns with `onupdate` to set to themselves: an update of Penstock's own columns must not change the
        user's row."""
        if not self.stamped or not columns.OURS.issuperset(names):
            return {}
        return {name: self.table.c[name] for name in self.stamped}

    def among(self, keys: Sequence[Key]) -> ColumnElement[bool]:
        """Condition: the row has one of these keys."""
        listed = self.listed(keys)
        return among(self.key[0], listed) if len(self.key) == 1 else tuple_(*self.key).in_(listed)

    def among_given(self, name: str) -> ColumnElement[bool]:
        """Condition: the row has one of the keys that are passed under this name, as `listed` makes them."""
        if len(self.key) == 1:
            return among(self.key[0], name)
        return tuple_(*self.key).in_(bindparam(name, expanding=True))

    def listed(self, keys: Sequence[Key]) -> list[Any]:
        return [key[0] for key in keys] if len(self.key) == 1 else list(keys)

    def is_row(self, key: Key) -> ColumnElement[bool]:
        """Condition: the row with this key, and one of the model's own."""
        return self.among([key]) if self.only is None else and_(self.among([key]), self.only)

    def key_given(self, id: Any) -> Key:
        """Read the key that a user gives: a value or, for several columns, a tuple or a dict."""
        if isinstance(id, Mapping) and set(id) == set(self.key_names):
            id = [id[name] for name in self.key_names]
        key = tuple(id) if isinstance(id, tuple | list) else (id,)
        if len(key) != len(self.key) or isinstance(id, Mapping):
            names = ", ".join(self.key_names)
            wanted = f"its key is {names}" if len(self.key) == 1 else f"its key is ({names}), a tuple"
            raise ConfigurationError(f"{id!r} is not the key of a row of {self.name}: {wanted}")
        return tuple(self._fitting(value, column) for value, column in zip(key, self.key, strict=True))

    def _fitting(self, value: Any, column: Column[Any]) -> Any:
        """A UUID or a number may be given as text.

        Other values are refused: databases would convert them differently.
        """
        kind = column.type
        try:
            if isinstance(kind, Uuid) and kind.as_uuid:
                return value if isinstance(value, UUID) else UUID(value)
            if isinstance(kind, Integer) and value is not None:
                return (
                    value
                    if isinstance(value, int)
                    else int(value)
                    if isinstance(value, str)
                    else index(value)
                )
        except (TypeError, ValueError, AttributeError):
            what = "a UUID" if isinstance(kind, Uuid) else "a whole number"
            raise ConfigurationError(
                f"{value!r} is not the key of a row of {self.name}: {column.name} is {what}"
            ) from None
        return value

    def column(self, name: str) -> Column[Any]:
        """The column that the user calls by this name."""
        if not isinstance(name, str):
            raise DefinitionError(f"{self.name}: columns are given by their names, not as {name!r}")
        found = self.columns.get(name)
        if found is None:
            close = difflib.get_close_matches(name, self.columns, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise DefinitionError(f"{self.name} has no column {name!r}{hint}")
        return found

    def key_in(self, row: Row[Any]) -> Key:
        """The key of a row as `selected` reads it."""
        return tuple([row[place] for place in self.key_places])

    def key_of(self, row: object) -> Key:
        values = self.values_of(row)
        return tuple(values[name] for name in self.key_names)

    def values_of(self, row: object) -> Mapping[str, Any]:
        """The values of a row, by the user's names."""
        if isinstance(row, Row):
            return row._mapping  # type: ignore[return-value]
        if isinstance(row, Mapping):
            return row
        return {name: value for name, value in vars(row).items() if name in self.columns}

    def read(self, row: Any) -> Mapping[str, Any]:
        """The same for a row that `made` returned, without a copy; it may have more entries."""
        return vars(row) if self.mapper is not None else row._mapping  # type: ignore[no-any-return]

    def kept(self, row: Any) -> Mapping[str, Any]:
        """Copies of values that a handler could change in place, such as lists and dicts."""
        if not self.changeable:
            return {}
        values = self.read(row)
        copies = {}
        for name in self.changeable:
            if values.get(name) is not None:
                with suppress(Exception):  # a value of a user's type that cannot be copied
                    copies[name] = deepcopy(values[name])
        return copies

    def as_read(self, row: Any, kept: Mapping[str, Any]) -> Mapping[str, Any]:
        """The values of the row before a handler had it."""
        return {**self.read(row), **kept} if kept else self.read(row)

    def selected(self) -> list[ColumnElement[Any]]:
        """All columns, under the user's names."""
        return [column.label(name) for name, column in self.columns.items()]

    def made(self, row: Row[Any]) -> Any:
        """The row for the handler: a detached instance of the model, or the plain row."""
        return row if self.mapper is None else self._instance(dict(zip(self.columns, row, strict=True)))

    def rebuilt(self, values: Mapping[str, Any]) -> Any:
        """A row as `made` makes it, from values by the user's names: they have come from another process."""
        if self.mapper is not None:
            return self._instance(dict(values))
        extra = [(self.columns[name],) for name in values]
        names = SimpleResultMetaData(tuple(values), extra)
        rows: IteratorResult[Any] = IteratorResult(names, iter([tuple(values.values())]))
        return rows.one()

    def _instance(self, values: dict[str, Any]) -> Any:
        mapper = self._mapper_for(values)
        if mapper is not self.mapper or mapper.polymorphic_on is not None:
            values = {name: value for name, value in values.items() if mapper.has_property(name)}
        instance = mapper.class_manager.new_instance()
        # Set directly, as loading does: no attribute counts as changed.
        vars(instance).update(values)
        make_transient_to_detached(instance)
        return instance

    def _mapper_for(self, values: Mapping[str, Any]) -> Mapper[Any]:
        assert self.mapper is not None
        kind = self.mapper.polymorphic_on
        if kind is None:
            return self.mapper
        name = next((name for name, column in self.columns.items() if column is kind), None)
        return self.mapper.polymorphic_map.get(values.get(name or ""), self.mapper)


def target_of(entity: Any, needs: Iterable[str] = columns.NAMES) -> Target:
    """Recognize a declarative model or a table."""
    target = recognize(entity)
    target.require(needs)
    if not target.key:
        raise DefinitionError(f"{target.name} has no primary key: rows cannot be told apart")
    return target


def table_of(entity: Any) -> Table:
    return recognize(entity).table


def attributes_set(row: object) -> list[str]:
    """Name the attributes of a row that a handler has set: the library would never write them.

    Not counted is what another object says about its own place beside it, such as a new one that refers to it, nor a
    value that is what it was. The plain rows of Core tables cannot be set.
    """
    state = None if is_plain(row) else inspect(row, raiseerr=False)
    if not isinstance(state, InstanceState) or not state.modified:
        return []
    mapper = state.mapper
    own = {each.key for each in mapper.relationships if each.direction is RelationshipDirection.MANYTOONE}
    own.update(mapper.column_attrs.keys())
    return [key for key in state.committed_state if key in own and state.attrs[key].history.has_changes()]


def is_plain(row: object) -> bool:
    """True for a row of a Core table: nothing of it can be set."""
    return isinstance(row, Row)


@lru_cache(maxsize=1000)
def recognize(entity: Any) -> Target:
    if isinstance(entity, Table):
        return _target(entity, entity, None, dict(entity.c.items()))
    mapper = inspect(entity, raiseerr=False)
    if not isinstance(mapper, Mapper):
        raise DefinitionError(f"{entity!r} is neither a declarative model nor a SQLAlchemy Table")
    table = mapper.local_table
    if not isinstance(table, Table) or mapper.persist_selectable is not table:
        raise DefinitionError(
            f"{mapper.class_.__name__} is spread over several tables; reconcile the base model"
        )
    return _target(mapper.class_, table, mapper, _named(mapper))


def _named(mapper: Mapper[Any]) -> dict[str, Column[Any]]:
    """The columns of the model, and those that its kinds have beside them in the same table."""
    named = _own(mapper)
    others: dict[str, Column[Any]] = {}
    doubtful: set[str] = set()
    for kind in mapper.self_and_descendants:
        if kind.local_table is mapper.local_table:
            for name, column in _own(kind).items():
                if others.setdefault(name, column) is not column:
                    doubtful.add(name)
    return named | {name: others[name] for name in others if name not in named and name not in doubtful}


def _own(mapper: Mapper[Any]) -> dict[str, Column[Any]]:
    found = {attribute.key: attribute.columns[0] for attribute in mapper.column_attrs}
    return {name: column for name, column in found.items() if isinstance(column, Column)}


def _only(mapper: Mapper[Any] | None) -> ColumnElement[bool] | None:
    if mapper is None or not mapper.single or mapper.polymorphic_on is None:
        return None
    kinds = [kind.polymorphic_identity for kind in mapper.self_and_descendants]
    return mapper.polymorphic_on.in_([kind for kind in kinds if kind is not None])


def _is_changeable(column: Column[Any]) -> bool:
    kind = column.type
    if isinstance(kind, TypeDecorator):
        return not isinstance(kind, columns.Instant)
    try:
        return not isinstance(kind, Enum) and kind.python_type not in FIXED
    except NotImplementedError:
        return True


def _is_stamped(column: Column[Any]) -> bool:
    """MySQL's ON UPDATE is often declared along with the default."""
    declared = str(getattr(column.server_default, "arg", "")).lower()
    return column.onupdate is not None or column.server_onupdate is not None or "on update" in declared


def _target(
    entity: Entity, table: Table, mapper: Mapper[Any] | None, named: Mapping[str, Column[Any]]
) -> Target:
    key = tuple(table.primary_key)
    names = {column: name for name, column in named.items()}
    key_names = tuple(names[column] for column in key)
    places = tuple(list(named).index(name) for name in key_names)
    changeable = tuple(name for name, column in named.items() if _is_changeable(column))
    stamped = tuple(column.key for column in table.c if _is_stamped(column) and column.computed is None)
    return Target(entity, table, mapper, named, key, key_names, places, _only(mapper), changeable, stamped)


# Keys of rows: their order, and a unique text for each.

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
    """The owner of a lock on a related row: a reconciler, for one of its rows."""
    return _shortened(f"{reconciler}:{_joined(key)}", OWNER_LENGTH)


def _joined(key: Key) -> str:
    parts = [str(part) for part in key]
    if len(parts) > 1:
        parts = [part.replace("\\", "\\\\").replace("/", "\\/") for part in parts]
    return "/".join(parts)


def _shortened(text: str, length: int) -> str:
    """Shorten a text; a digest keeps texts with the same beginning apart."""
    if len(text) <= length:
        return text
    return f"{text[: length - DIGEST - 1]}~{sha256(text.encode()).hexdigest()[:DIGEST]}"
