"""A reconciler: a function, the rows it handles, and its options."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Boolean, Column, ColumnElement, Enum, Index, Integer, String, and_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import visitors

from penstock.errors import DefinitionError
from penstock.middleware import HandlerCall, Middleware, call_within, call_within_sync, read_middleware
from penstock.reconcile import locks as related
from penstock.reconcile.conditions import (
    check_tables,
    condition,
    conjuncts,
    is_constant,
    is_in_words,
    written_out,
)
from penstock.reconcile.options import Policy
from penstock.reconcile.table import Entity, key_text, target_of
from penstock.values.fork_safety import cached_property
from penstock.values.function_identity import qualified_name
from penstock.values.typed_json.annotations import is_async, waited_for

Handler = Callable[..., Any]
NAME = re.compile(r"[^:\s]{1,150}")
SHORT_TEXT = 190


class Reconciler:
    """A function declared by `@app.reconciler(...)`. Calling it is calling the function."""

    def __init__(
        self,
        function: Handler,
        entity: Entity,
        *,
        name: str | None = None,
        where: ColumnElement[bool] | None = None,
        locks: object = (),
        on_lost: Callable[..., Any] | None = None,
        index: bool = True,
        middleware: object = (),
        **options: Any,
    ) -> None:
        self.function = function
        _check_function(function)
        self.name = name or qualified_name(function)
        if not NAME.fullmatch(self.name):
            raise DefinitionError(
                f"{self.name!r} is not a name for a reconciler: no spaces, no colons, at most 150"
            )
        self.target = target_of(entity)
        self.where = self._condition(where)
        self.locks = related.checked(locks)
        self._check_locks()
        if on_lost is not None and not callable(on_lost):
            raise DefinitionError(
                f"{self.name}: on_lost={on_lost!r} must be a function of the item and its values"
            )
        self.on_lost = on_lost
        self.around = _middleware(self.name, middleware)
        """Its own middleware, inside that of the app."""
        self.around_all: Callable[[], tuple[Middleware, ...]] = tuple
        self.policy = Policy.of(options)
        self.is_async = is_async(function) or is_async(inspect.unwrap(function))
        self.executor = self._executor()
        self.enabled = True
        """False: this process claims none of its rows."""
        self._check_names()
        if index:
            self._add_index()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def middleware(self) -> tuple[Middleware, ...]:
        """The middleware around its handler: the app's, and inside that its own."""
        return self.around_all() + self.around

    def visit(self, item: Any, around: tuple[Middleware, ...] | None = None) -> Any:
        """Call the function inside the middleware, its own or that given; of an `async def`, something to await."""
        around = self.middleware if around is None else around
        if not around:
            return self.function(item)
        call = HandlerCall(key_text(item.claim.key), self.name, item.attempts + 1, {"item": item}, item=item)
        if self.is_async:
            return call_within(around, call, lambda: waited_for(self.function(item)))
        return call_within_sync(around, call, lambda: _ended(self.function(item)))

    def _executor(self) -> str:
        """Where its handler runs: as told, else by the kind of function."""
        told = self.policy.executor
        if told == "async" and not self.is_async:
            raise DefinitionError(
                f'{self.name}: executor="async" is for an `async def`: this function would hold up the event loop. '
                'Leave it out, or say "thread" or "process"'
            )
        return told or ("async" if self.is_async else "thread")

    def enable(self) -> None:
        self.enabled = True

    def disable(self) -> None:
        """From now on this process takes no more rows; what it has, it finishes."""
        self.enabled = False

    def _condition(self, where: object) -> ColumnElement[bool] | None:
        """The condition of its rows; for a model that shares its table, only rows of that model."""
        only = self.target.only
        if where is None:
            return only
        model = getattr(self.target.entity, "__name__", self.target.name)
        found = condition(f"{self.name}: where", where, model)
        check_tables(f"{self.name}: where=", found, [self.target.table])
        return found if only is None else and_(only, found)

    def _check_locks(self) -> None:
        for lock in self.locks:
            table = lock.target().table
            if table is self.target.table:
                raise DefinitionError(
                    f"{self.name} locks related rows of its own table {self.target.name}; "
                    "only other tables can be locked"
                )
            check_tables(f"{self.name}: locks=[{lock.label}]", lock.on, [self.target.table, table])

    @cached_property
    def watched(self) -> frozenset[str]:
        """The columns that decide whether a row is for this reconciler."""
        if self.where is None:
            return frozenset()
        if is_in_words(self.where):
            return frozenset(column.name for column in self.target.table.c)
        elements = visitors.iterate(self.where)
        return frozenset(e.name for e in elements if isinstance(e, Column) and self._is_own(e))

    def _is_own(self, column: Column[Any]) -> bool:
        return getattr(column.table, "fullname", None) == self.target.table.fullname

    def _check_names(self) -> None:
        if self.policy.by is not None:
            self.target.column(self.policy.by)
        exhausted = self.policy.on_exhausted
        if isinstance(exhausted, Mapping):
            for name in exhausted:
                self.target.column(name)
        if not isinstance(self.policy.overwrite, bool):
            for name in self.policy.overwrite:
                self.target.column(name)

    # the index

    @property
    def index_name(self) -> str:
        """The name of its index: readable, with a digest that keeps long or similar names apart."""
        short = re.sub(r"\W+", "_", self.name.rpartition(".")[2])
        digest = hashlib.sha256(f"{self.target.name} {self.name}".encode()).hexdigest()[:8]
        return f"ix_{self.target.table.name[:22]}_{short[:22]}_{digest}"

    @property
    def index_names(self) -> tuple[str, str]:
        """For databases with partial indexes, and for those without."""
        return self.index_name, f"{self.index_name}2"

    def _add_index(self) -> None:
        """Add the index to the table, so that `create_all` and migration tools find it."""
        table = self.target.table
        if any(index.name in self.index_names for index in table.indexes):
            return
        due = table.c.next_process_at
        only = self._index_conditions()
        partial = Index(
            self.index_name,
            due,
            postgresql_where=_if_written(only, postgresql.dialect()),  # type: ignore[no-untyped-call]
            sqlite_where=_if_written(only, sqlite.dialect()),
        )
        partial.ddl_if(dialect=("postgresql", "sqlite"))  # type: ignore[arg-type]  # a tuple is fine
        leading = self._leading_columns() if only else []
        whole = Index(self.index_names[1], *leading, due)
        whole.ddl_if(dialect=("mysql", "mariadb"))  # type: ignore[arg-type]

    def _index_conditions(self) -> list[ColumnElement[bool]]:
        """The parts of the condition that a partial index takes: those over columns of the table and constants only."""
        conditions = [] if self.where is None else conjuncts(self.where)
        return [each for each in conditions if is_constant(each) and self._is_about_own(each)]

    def _is_about_own(self, condition: ColumnElement[bool]) -> bool:
        return all(self._is_own(each) for each in visitors.iterate(condition) if isinstance(each, Column))

    def _leading_columns(self) -> list[Column[Any]]:
        """The leading columns of the index, for a database without partial indexes."""
        found = [column for column in self.target.table.c if column.name in self.watched]
        return [column for column in sorted(found, key=lambda each: each.name) if _is_short(column)][:2]

    def __repr__(self) -> str:
        return f"<reconciler {self.name} of {self.target.name}>"


def declaration(
    known: dict[str, Reconciler],
    model: Any,
    options: Mapping[str, Any],
    around_all: Callable[[], tuple[Middleware, ...]],
) -> Callable[[Handler], Reconciler]:
    """The decorator: makes a reconciler of a function and adds it to those that are known."""
    if inspect.isfunction(model):
        raise DefinitionError("say which rows it is for: @app.reconciler(Model, where=...)")
    target_of(model)

    def declare(function: Handler) -> Reconciler:
        made = Reconciler(function, model, **options)
        made.around_all = around_all
        other = known.get(made.name)
        if other is not None and _name(other.function) != _name(function):
            raise DefinitionError(
                f"there are two reconcilers named {made.name!r}; give one of them another name="
            )
        known[made.name] = made
        return made

    return declare


def _ended(value: Any) -> Any:
    """Await the result of a function that is not async but returns an awaitable."""
    return asyncio.run(waited_for(value)) if inspect.isawaitable(value) else value


def _middleware(name: str, given: object) -> tuple[Middleware, ...]:
    try:
        return read_middleware(given)
    except TypeError as error:
        raise DefinitionError(f"{name}: middleware={given!r}: {error}") from None


def _name(function: Handler) -> object:
    return getattr(function, "__qualname__", function)


def _check_function(function: object) -> None:
    if not callable(function):
        raise DefinitionError(f"a reconciler is a function that takes an item, not {function!r}")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        name = getattr(function, "__qualname__", function)
        raise DefinitionError(
            f"{name} must take one argument, the item: def {name}(item) ({error})"
        ) from None
    except ValueError:
        pass  # it has no signature to check


def _if_written(lasting: list[ColumnElement[bool]], dialect: Dialect) -> ColumnElement[bool] | None:
    written = [each for each in lasting if written_out(each, dialect) is not None]
    return and_(*written) if written else None


def _is_short(column: Column[Any]) -> bool:
    kind = column.type
    if isinstance(kind, String) and not isinstance(kind, Enum):
        return kind.length is not None and kind.length <= SHORT_TEXT
    return isinstance(kind, Integer | Boolean | Enum)
