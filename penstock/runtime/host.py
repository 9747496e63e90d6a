"""What the runtime needs of the app it runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from penstock.database.engine import Database
from penstock.doors import Doors
from penstock.queue.claim import Foresee
from penstock.queue.jobs import Follow
from penstock.queue.wakeups import Wakeups
from penstock.runtime.job_source import Hydrate
from penstock.settings import Settings
from penstock.telemetry.events import Stream
from penstock.values.limits import TaskLimits

if TYPE_CHECKING:
    from penstock.reconcile.definition import Reconciler


class Host(Protocol):
    """An app, seen from below."""

    settings: Settings
    database: Database
    events: Stream
    wakeups: Wakeups
    doors: Doors
    follow: Follow
    hydrate: Hydrate | None
    foresee: Foresee | None
    limited: dict[str, TaskLimits]
    reconcilers: dict[str, Reconciler]
    chores: tuple[Callable[[], bool], ...]

    @property
    def task_names(self) -> Sequence[str]: ...

    def next_chore(self) -> float | None: ...

    def find_task(self, name: str) -> Any: ...

    def prepare(self) -> None: ...
