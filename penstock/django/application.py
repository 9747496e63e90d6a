"""The one app of a Django project: its database is one of `DATABASES`, and its writes join `atomic()`.

Inside an `atomic()` block of the app's database, what is enqueued, triggered or scheduled is written on Django's own
connection, and is there if and only if the block commits. Reads in the block see it. Async callers cross into the
thread that Django keeps for their connections, so the same holds for them. Outside of a block the app uses connections
of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ParamSpec, TypeVar

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.db import connections

from penstock.app import Penstock
from penstock.async_bridge import AsyncBridge
from penstock.database.transaction import Transaction
from penstock.database.user.connections import recognize
from penstock.django.connections import HandlerConnections
from penstock.django.databases import database_url
from penstock.errors import ConfigurationError
from penstock.schema import reset, version

P = ParamSpec("P")
R = TypeVar("R")

SETTING = "PENSTOCK"


class DjangoBridge(AsyncBridge):
    """Runs the database work of async callers in the thread that Django keeps for their connections."""

    async def run(self, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        done: R = await sync_to_async(work, thread_sensitive=True)(*args, **kwargs)
        return done


class DjangoApp(Penstock):
    """An app on one of Django's databases. `penstock.django.app` is the project's own."""

    def __init__(self, database_url: str | None = None, *, alias: str | None = None, **settings: Any) -> None:
        self.alias = alias
        """The database's name in DATABASES; None: the app has a URL of its own."""
        self._name = None if alias is None else _entry(alias)["NAME"]
        super().__init__(database_url if alias is None else _url(alias), **settings)
        self.bridge = DjangoBridge(self.bridge.threads)
        self.database.callers_transaction = self._open_transaction
        self.middleware(HandlerConnections(self.settings.pool_size))

    @classmethod
    def set_up_process(cls) -> None:
        """In a fresh process for handlers: before the modules of tasks are imported, with their models."""
        _set_up()

    @property
    def atomic_connection(self) -> Any:
        """Django's connection in this thread, if it has an `atomic()` block open on the app's database; else None."""
        if self.alias is None:
            return None
        self._follow_test_runner()
        connection = connections[self.alias]
        return connection if connection.in_atomic_block else None

    def connection_for(self, given: object | None) -> object | None:
        return self.atomic_connection if given is None else given

    def _open_transaction(self) -> Transaction | None:
        connection = self.atomic_connection
        return None if connection is None else recognize(connection).transaction(self.database)

    def prepare(self) -> None:
        self._follow_test_runner()
        if not self._prepared and self.database.dialect.one_writer:
            inside = self._open_transaction()
            if inside is not None:  # another connection would wait for this block
                version.ensure_within(self.database, inside, upgrade=self.settings.auto_migrate)
                return
        super().prepare()

    def migrate(self) -> int:
        self._follow_test_runner()
        return super().migrate()

    def _follow_test_runner(self) -> None:
        """Django's test runner changes the name of the database in place, after the tasks have been declared."""
        if self.alias is None or _entry(self.alias)["NAME"] == self._name:
            return
        self._name = _entry(self.alias)["NAME"]
        self.close()
        self.settings = self.settings.with_changes(database_url=_url(self.alias))
        self.database.move_to(self.settings)
        self._prepared = False
        self._leave_before_the_database_is_dropped()

    def _leave_before_the_database_is_dropped(self) -> None:
        """Close our connections before the test database is dropped: PostgreSQL refuses to drop a database with
        connections."""
        creation = connections[self.alias].creation
        drop = creation.destroy_test_db

        def close_and_drop(*args: Any, **kwargs: Any) -> None:
            self.close()
            drop(*args, **kwargs)

        creation.destroy_test_db = close_and_drop

    def verify_schema(self) -> None:
        """Raise `SchemaOutdated` or `SchemaTooNew` if the tables are not those of this version."""
        inside = self._open_transaction()
        if inside is not None and self.database.dialect.one_writer:
            version.ensure_within(self.database, inside, upgrade=False)
        else:
            version.ensure(self.database, upgrade=False)

    def forget_all_work(self) -> None:
        """Delete every row of Penstock's tables: `manage.py flush`, and the end of a TransactionTestCase."""
        self.database.in_transaction(reset.delete_everything)


def the_app() -> DjangoApp:
    """The app that the project's settings describe, with the tasks that its apps declare."""
    _set_up()  # imports the tasks, which ask for the app
    return _made()


@cache
def _made() -> DjangoApp:
    given = _given()
    alias = given.pop("database", None)
    if given.get("database_url") is None:
        alias = alias or "default"
    elif alias is not None:
        raise ConfigurationError(
            f"{SETTING}: give DATABASE, an alias of DATABASES, or DATABASE_URL, not both"
        )
    if alias is not None and alias not in connections.settings:
        known = ", ".join(sorted(connections.settings))
        raise ConfigurationError(f'{SETTING} = {{"DATABASE": {alias!r}}}: DATABASES has only {known}')
    return DjangoApp(alias=alias, **given)


def _set_up() -> None:
    """Call `django.setup()`, unless it was or is being called: for `penstock worker penstock.django:app`."""
    if not apps.ready and not apps.loading:
        django.setup()


def _given() -> dict[str, Any]:
    """The settings of the project, by the names that `Penstock(...)` takes."""
    found: object = getattr(settings, SETTING, None) or {}
    if not isinstance(found, Mapping):
        raise ConfigurationError(f'{SETTING} in the settings: give a dict, such as {{"CONCURRENCY": 20}}')
    return {str(name).lower(): value for name, value in found.items()}


def _entry(alias: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = connections.settings[alias]
    return found


def _url(alias: str) -> str:
    return database_url(alias, connections[alias].vendor, _entry(alias))
