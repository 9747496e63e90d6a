"""The protocol of the app that the runtime needs."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from penstock.async_bridge import AsyncBridge
from penstock.database.database import Database
from penstock.queue.claim import Foresee
from penstock.queue.jobs import Follow, RunLookup
from penstock.queue.wakeups import Wakeups
from penstock.runtime.pump.job_source import Hydrate
from penstock.settings import Settings
from penstock.telemetry.events import Stream
from penstock.values.limits import TaskLimits

if TYPE_CHECKING:
    from penstock.reconcile.reconciler import Reconciler


class AppServices(Protocol):
    """An app, seen from below."""

    settings: Settings
    database: Database
    events: Stream
    wakeups: Wakeups
    bridge: AsyncBridge
    worker_loops: list[AbstractEventLoop]
    follow: Follow
    prepare_claimed_steps: Hydrate | None
    prefetch_runs: Foresee | None
    run_lookup: RunLookup | None
    limited: dict[str, TaskLimits]
    reconcilers: dict[str, Reconciler]
    chores: tuple[Callable[[], bool], ...]

    @property
    def task_names(self) -> Sequence[str]: ...

    def next_chore(self) -> float | None: ...

    def find_task(self, name: str) -> Any: ...

    def prepare(self) -> None: ...

    def declare_schedules(self) -> None: ...

    def fire_ticks(self) -> bool: ...
