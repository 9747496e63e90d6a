"""`AppServices`, the protocol by which the layers below use the app.

It is a low layer, so that all of them can import it. The types of higher layers are imported for type checkers only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable, Mapping, Sequence

    from penstock.async_bridge import AsyncBridge
    from penstock.database.database import Database
    from penstock.database.transaction import Transaction
    from penstock.database.user.connections import CallerConnection
    from penstock.job import Job
    from penstock.middleware import EnqueueMiddleware, Middleware
    from penstock.pipelines.engine import Engine
    from penstock.pipelines.pipeline import Pipeline
    from penstock.pipelines.run import Run
    from penstock.queue.claim import PrefetchRuns
    from penstock.queue.jobs import Follow, NewJob, RunLookup
    from penstock.queue.wakeups import Wakeups
    from penstock.reconcile.reconciler import Reconciler
    from penstock.runtime.pump.job_source import PrepareClaimedSteps
    from penstock.schedules.definition import ScheduleDefinition
    from penstock.schedules.schedule import Schedule
    from penstock.settings import Settings
    from penstock.task import Task
    from penstock.telemetry.events import Stream
    from penstock.values.limits import TaskLimits


class AppServices(Protocol):
    """An app, seen from below."""

    # what it consists of

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
    def worker_loops(self) -> list[AbstractEventLoop]: ...

    # what is declared on it

    @property
    def task_names(self) -> Sequence[str]: ...

    @property
    def limited(self) -> dict[str, TaskLimits]: ...

    @property
    def reconcilers(self) -> Mapping[str, Reconciler]: ...

    @property
    def declared(self) -> Mapping[str, ScheduleDefinition]: ...

    @property
    def middlewares(self) -> tuple[Middleware, ...]: ...

    @property
    def enqueue_middlewares(self) -> tuple[EnqueueMiddleware, ...]: ...

    @property
    def tick_middlewares(self) -> tuple[EnqueueMiddleware, ...]: ...

    def find_task(self, name: str) -> Task[Any, Any] | None: ...

    def find_pipeline(self, name: str) -> Pipeline | None: ...

    def as_pipeline(self, target: Any) -> Pipeline: ...

    def also_runs(self, task: Task[Any, Any]) -> None: ...

    def declare_pipeline(self, pipeline: Pipeline) -> None: ...

    def declare_schedule(self, target: Any, cron: str | None, given: dict[str, Any]) -> Schedule: ...

    # writing

    def submit(self, jobs: Sequence[NewJob], connection: object | None) -> list[str]: ...

    async def submit_async(self, jobs: Sequence[NewJob], connection: object | None) -> list[str]: ...

    def connection_for(self, given: object | None) -> object | None: ...

    def within(self, theirs: CallerConnection) -> Transaction: ...

    def job(self, id: str) -> Job[Any]: ...

    def run(self, id: str) -> Run: ...

    # running

    @property
    def engine(self) -> Engine: ...

    @property
    def follow(self) -> Follow: ...

    @property
    def prepare_claimed_steps(self) -> PrepareClaimedSteps | None: ...

    @property
    def prefetch_runs(self) -> PrefetchRuns | None: ...

    @property
    def run_lookup(self) -> RunLookup | None: ...

    @property
    def inline(self) -> Callable[[Sequence[NewJob]], None] | None: ...

    @property
    def chores(self) -> tuple[Callable[[], bool], ...]: ...

    def next_chore(self) -> float | None: ...

    def declare_schedules(self) -> None: ...

    def fire_ticks(self) -> bool: ...

    def prepare(self) -> None: ...

    def listen_for_results(self) -> None: ...
