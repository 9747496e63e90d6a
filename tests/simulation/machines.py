"""Machines: what outlives a process and a schedule. On each, one process after the other is started.

Settings, schema and declarations are made once, which takes longer than most lives; a process gets an app of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace as _Known
from typing import Any

from sqlalchemy import MetaData

from penstock import app as app_module
from penstock.app import Penstock
from penstock.database.database import Database
from penstock.reconcile.events import LeaseLost
from penstock.settings import Settings
from penstock.telemetry.events import RunRepaired
from tests.simulation.dialect import WiredSqlite
from tests.simulation.server import Server
from tests.simulation.virtual import here, replaced

SETTINGS: dict[str, Any] = {
    "heartbeat_interval": 3.0,
    "reap_after": 9.0,
    "poll_interval": 12.0,
    "sweep_interval": 12.0,
    "housekeeping_interval": 9.0,
    "shutdown_timeout": 3.0,
    "concurrency": 3,
    "batch": 4,
    "retention": None,
    "inline_fanout": 2,
}


class Machine:
    """What outlives a process and a schedule: settings and schema as read once, and the way to the database."""

    def __init__(self, name: str, server: Server, declare: Sequence[Callable[[Penstock], object]]) -> None:
        self.name = name
        self.declare = declare
        self.app = self.first = Penstock("sqlite://", **SETTINGS)
        self.settings = self.first.settings
        self.dialect = WiredSqlite(server)
        self.database = self.app.database
        self.database.dialect = self.dialect
        self.database.set_clock("sim_now()")
        self.database.connections.borrow = self.dialect.loan  # type: ignore[method-assign]
        self.database.drop_connections = self.dialect.empty_pool  # type: ignore[method-assign]
        self.database.engine.connect().close()
        self.app._prepared = True
        for declaration in self.declare:
            declaration(self.app)
        self.declared: list[Any] = [*self.app.tasks.values(), *self.app.pipelines.values()]
        self._know(server)

    def _know(self, server: Server) -> None:
        """What is the same on every machine is made once, for all lives of all: less memory is walked through."""
        self.database._renderers = server.renderers
        for known in self.declared:
            vars(known)["codec"] = server.codecs.setdefault(known.name, known.codec)
        for pipeline in self.app.pipelines.values():
            vars(pipeline)["definition"] = server.definitions.setdefault(pipeline.name, pipeline.definition)

    def boot(self) -> None:
        """A fresh process: nothing is left of the one before but what is in the database."""
        self.shut()
        known = {"Settings": _Known(load=self._settings), "Database": self._database}
        with replaced(app_module, known | {"catalog": _Known(describe=self._metadata)}):
            self.app = Penstock("sqlite://")
        self.app._prepared = True
        self._belong(self.app)
        self.app.tasks |= self.first.tasks
        self.app.limited |= self.first.limited
        self.app.pipelines |= self.first.pipelines
        self.app.reconcilers |= self.first.reconcilers
        self.app.events.on(LeaseLost, lambda event: here().record("lost lease", event.token))
        self.app.events.on(RunRepaired, lambda event: here().record("repaired", event.run_id, event.repair))

    def _belong(self, app: Penstock) -> None:
        for declared in self.declared:
            declared.host = app  # declaring anew takes longer than all that is done in a short life

    def forget(self) -> None:
        """The schedule is over: nothing here leads to it any more, and what it has left behind can be collected."""
        self.shut()
        self.app = self.first
        self.database.call_housekeeping = self.first.wakeups.call_housekeeping
        self._belong(self.first)

    @contextmanager
    def keeping(self, seconds: float) -> Iterator[None]:
        """So long its processes keep what is over."""
        self.settings = self.database.settings = replace(self.first.settings, retention=seconds)
        try:
            yield
        finally:
            self.settings = self.database.settings = self.first.settings

    # What takes long to make and never changes, for every further app of this machine.

    def _settings(self, **_: object) -> Settings:
        return self.settings

    def _database(self, _: Settings) -> Database:
        return self.database

    def _metadata(self, _: Database) -> MetaData:
        return self.first.metadata

    def shut(self) -> None:
        """No connection is left, not even one that an outage has cut without a fiber having noticed it yet."""
        self.dialect.cut_all()
        self.dialect.empty_pool()
