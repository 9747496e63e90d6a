"""The parts of an app that its schedules use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from penstock.async_bridge import AsyncBridge
from penstock.database.database import Database
from penstock.database.transaction import Transaction
from penstock.database.user import connections
from penstock.middleware import EnqueueMiddleware, Middleware
from penstock.queue.jobs import Follow, NewJob
from penstock.queue.wakeups import Wakeups
from penstock.settings import Settings
from penstock.telemetry.events import Stream

if TYPE_CHECKING:
    from penstock.pipelines.engine import Engine
    from penstock.schedules.definition import ScheduleDefinition


class ScheduleServices(Protocol):
    """An app, seen from its schedules."""

    @property
    def settings(self) -> Settings: ...

    @property
    def database(self) -> Database: ...

    @property
    def events(self) -> Stream: ...

    @property
    def wakeups(self) -> Wakeups: ...

    @property
    def bridge(self) -> AsyncBridge: ...

    @property
    def engine(self) -> Engine: ...

    @property
    def middlewares(self) -> tuple[Middleware, ...]: ...

    @property
    def enqueue_middlewares(self) -> tuple[EnqueueMiddleware, ...]: ...

    @property
    def follow(self) -> Follow: ...

    @property
    def inline(self) -> Callable[[Sequence[NewJob]], None] | None: ...

    @property
    def declared(self) -> dict[str, ScheduleDefinition]: ...

    def prepare(self) -> None: ...

    def connection_for(self, given: object | None) -> object | None: ...

    def within(self, theirs: connections.Foreign) -> Transaction: ...

    def find_task(self, name: str) -> Any: ...

    def find_pipeline(self, name: str) -> Any: ...

    def job(self, id: str) -> Any: ...

    def run(self, id: str) -> Any: ...
